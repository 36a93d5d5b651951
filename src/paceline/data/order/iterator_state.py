"""The state of a TensorFlow iterator as bytes: where it stands, and what it has read ahead and shuffled."""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from paceline.data.compat import (
    dataset_of,
    operations_of_functions,
    resource_of,
    shuffle_buffer_of,
    with_sources,
    writes_file,
)

_IGNORE_STATE_OUTSIDE, _REFUSE_STATE_OUTSIDE = 1, 2
"""`ExternalStatePolicy` as the operation has it. Refused: an iterator over what is not part of its state has none."""

WRITES_FILES = "SnapshotDataset"
"""`Dataset.snapshot`, or `cache` with a file name: TensorFlow closes its file half-way when the state is asked for. Of
a snapshot later epochs end there with an error; of a cache they find a part, which TensorFlow refuses."""

_SEED_OF_SHUFFLE = b"epoch_num_random_samples"
"""Under this name a shuffle writes down how many seeds it has drawn."""


_writes_files: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
"""Of datasets, once somebody has asked."""

_BYTES_OF_TEXT = 64
_ENDLESS = 1 << 62


class NoIteratorStateError(RuntimeError):
    """The dataset keeps state where an iterator cannot write it down; the message names the operation."""


def iterator_state(iterator: Any, *, ignores_state_outside: bool = False) -> Any:
    """uint8 vector: the state of a `tf.data.Iterator`.

    Args:
        iterator: Over a dataset.
        ignores_state_outside: For a dataset that is known to draw its random numbers before its first element only.

    Raises:
        NoIteratorStateError: the dataset calls Python, draws random numbers from a generator of TensorFlow's, or
            writes what it reads to files.
    """
    if _writes_what_it_reads(iterator):
        raise NoIteratorStateError(WRITES_FILES)
    try:
        state = tf.raw_ops.SerializeIterator(
            resource_handle=resource_of(iterator),
            external_state_policy=_IGNORE_STATE_OUTSIDE if ignores_state_outside else _REFUSE_STATE_OUTSIDE,
        )
    except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError) as fault:
        raise NoIteratorStateError(_operation_in(fault.message)) from fault
    return np.frombuffer(tf.io.serialize_tensor(state).numpy(), np.uint8)


def num_shuffles(state: Any) -> int:
    """How many shuffles have written down their seeds: those that have rows left to give.

    One that has not is where it is when an iterator over it has been made as often as before, and no more: putting
    back a state makes one iterator more.
    """
    return int(np.ascontiguousarray(state).tobytes().count(_SEED_OF_SHUFFLE))


def restore_iterator(iterator: Any, state: Any) -> None:
    """Puts an iterator over the same dataset where the one was whose state this is.

    Raises:
        tf.errors.OpError: it is an iterator over another dataset.
    """
    tf.raw_ops.DeserializeIterator(
        resource_handle=resource_of(iterator),
        serialized=tf.io.parse_tensor(np.ascontiguousarray(state).tobytes(), tf.variant),
    )


def _writes_what_it_reads(iterator: Any) -> bool:
    dataset = dataset_of(iterator)
    if dataset is None:
        return False
    if dataset not in _writes_files:
        sources = list(with_sources(dataset))
        _writes_files[dataset] = any(map(writes_file, sources)) or any(
            WRITES_FILES in name
            for one in sources
            for types in [{type(one).__name__}, *operations_of_functions(one)]
            for name in types
        )
    return _writes_files[dataset]


def _operation_in(message: str) -> str:
    """``RandomUniform``, out of "{{function_node …}} RandomUniform is stateful. [Op:…]"."""
    words = message.split("}}")[-1].split()
    return words[0] if words else message


def estimated_state_bytes(dataset: Any) -> int:
    """About how large the state of an iterator over `dataset` gets: its shuffle buffers and caches.

    Unknown sizes count as one, datasets inside an interleave not at all: a lower bound.
    """
    return sum(map(_held, with_sources(dataset)))


def _held(dataset: Any) -> int:
    kind = type(dataset).__name__
    if (elements := shuffle_buffer_of(dataset)) is not None:
        cardinality = _cardinality(dataset)
        return min(elements if elements > 0 else _ENDLESS, cardinality) * _bytes_of(dataset.element_spec)
    if "Cache" in kind:
        cardinality = _cardinality(dataset)
        return 0 if cardinality == _ENDLESS else cardinality * _bytes_of(dataset.element_spec)
    return 0


def _cardinality(dataset: Any) -> int:
    number = int(dataset.cardinality())
    return number if number >= 0 else _ENDLESS


def _bytes_of(spec: Any) -> int:
    total = 0
    for leaf in tf.nest.flatten(spec):
        shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
        if shape is None or dtype is None or shape.rank is None:
            continue
        elements = 1
        for size in shape:
            elements *= size or 1
        total += elements * (_BYTES_OF_TEXT if dtype == tf.string else dtype.size)
    return total
