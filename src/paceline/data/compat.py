"""Every private name of `tf.data` that Paceline uses, why, and a check at import that those of its classes are there.

Tested with TensorFlow 2.21; this is the only file to mend when one of them is gone.

| name | why there is no public way |
|---|---|
| `Dataset._inputs` | the datasets that a dataset is made of |
| `Dataset._functions` | the functions that a dataset calls |
| `Dataset._variant_tensor` | what `tf.raw_ops.ComputeBatchSize` takes, and a dataset derived from another |
| an iterator's `_iterator_resource`, `_dataset` | its position as bytes; `tf.train.Checkpoint` would write files |
| a shuffle's `_buffer_size` | how much such a position may hold |
| a cache's `_filename` | whether it is a file, which is closed when an iterator is freed |
"""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

for _name in ("_inputs", "_functions", "_variant_tensor"):
    if not hasattr(tf.data.Dataset, _name):
        raise ImportError(
            f"Paceline does not know TensorFlow {tf.__version__}: tf.data.Dataset has no {_name}. Install a TensorFlow "
            "that Paceline supports (2.17 to 2.21), or a newer Paceline. [version]"
        )


def inputs_of(dataset: Any) -> list[Any]:
    """The datasets that `dataset` is made of directly; none of one that a function makes (`interleave`)."""
    return list(dataset._inputs()) if isinstance(dataset, tf.data.Dataset) else []


def with_sources(dataset: Any) -> Iterator[Any]:
    """`dataset`, its inputs, theirs, and so on; each once."""
    seen: set[int] = set()
    stack = [dataset]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        stack += inputs_of(one)


def operations_of_functions(dataset: Any) -> Iterator[set[str]]:
    """For each function that `dataset` calls, the types of the operations in it, and in the functions that it calls."""
    for wrapper in dataset._functions() if isinstance(dataset, tf.data.Dataset) else ():
        definition = wrapper.function.graph.as_graph_def()
        inner = [function.node_def for function in definition.library.function]
        yield {node.op for nodes in (definition.node, *inner) for node in nodes}


def batch_size_of(dataset: Any) -> int:
    """Rows of a full batch as TensorFlow sees them in the operations of a dataset; negative if they do not tell."""
    return int(tf.raw_ops.ComputeBatchSize(input_dataset=variant_of(dataset)))


def variant_of(dataset: Any) -> Any:
    """What TensorFlow's operations know a dataset by."""
    return dataset._variant_tensor


def shuffle_buffer_of(dataset: Any) -> int | None:
    """Elements in the buffer of a shuffle; None of any other dataset."""
    size = getattr(dataset, "_buffer_size", None) if "Shuffle" in type(dataset).__name__ else None
    return None if size is None else int(size)


def writes_file(dataset: Any) -> bool:
    """Whether iterators over a dataset write a file as they go: a cache in a file, a snapshot of TensorFlow's."""
    kind = type(dataset).__name__
    if "Cache" in kind:
        name = getattr(dataset, "_filename", None)
        return name is not None and bool(name.numpy())
    return "SnapshotDataset" in kind


def resource_of(iterator: Any) -> Any:
    """What TensorFlow's operations know a `tf.data` iterator by."""
    return iterator._iterator_resource


def dataset_of(iterator: Any) -> Any:
    """What an iterator goes through; None if it does not say."""
    return getattr(iterator, "_dataset", None)
