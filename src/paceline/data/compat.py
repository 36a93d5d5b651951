"""Every private name of `tf.data` that Paceline uses, why, and a check at import that those of its classes are there.

Tested with TensorFlow 2.21; this is the only file to mend when one of them is gone.

| name | why there is no public way |
|---|---|
| `Dataset._inputs` | the datasets that a dataset is made of |
| `Dataset._functions` | the functions that a dataset calls |
| `Dataset._variant_tensor` | what `tf.raw_ops.ComputeBatchSize` takes, and a dataset derived from another |
| an iterator's `_iterator_resource`, `_dataset` | its position as bytes; `tf.train.Checkpoint` would write files |
| a shuffle's `_buffer_size` | how much such a position may hold |
| its class, `_seed`, `_seed2`, `_reshuffle_each_iteration`, `_common_args` | the same shuffle of other rows |
| `_AutoShardDataset`, a shard's `_num_shards` | data divided by TensorFlow's rules, without a strategy of its own |
| a cache's `_filename` | whether it is a file, which is closed when an iterator is freed |
| names of modules and classes, `_func` of what `_functions` returns | which method of `Dataset` a script has called |
| a map's `_map_func` | what has been traced is called again, over other rows |
| its `_num_parallel_calls`, `_deterministic`, `_use_unbounded_threadpool`, `_force_synchronous` | its options |
| its `_use_inter_op_parallelism`, `_preserve_cardinality` | the same map of other rows |
| a batch's `_batch_size`, `_drop_remainder` | the same batches, of other rows |
| an interleave's `_cycle_length`, `_block_length` | the same interleave, in parallel |
| `_count` of take, skip, repeat; a zip's `_datasets` | the same stage over other rows |
| a spec's `_flat_tensor_specs` | how many tensors a traced function takes for an element |
| `model_pb2` | what the stages of a running iterator have cost |
| `pfor` | one operation more that `tf.vectorized_map` knows: bytes to numbers |
| `op_def_registry` | whether an operation has a state |
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

try:
    from tensorflow.core.framework import model_pb2
    from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset
    from tensorflow.python.data.ops.shuffle_op import _ShuffleDataset
    from tensorflow.python.framework import op_def_registry
    from tensorflow.python.ops.parallel_for import pfor
except ImportError as fault:
    raise ImportError(
        f"Paceline does not support TensorFlow {tf.__version__}: a name that it needs is missing ({fault}). "
        "Install a TensorFlow that Paceline supports (2.17 to 2.21), or a newer Paceline. [version]"
    ) from fault

ShuffleDataset = _ShuffleDataset

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


def functions_of(dataset: Any) -> list[Any]:
    """The traced functions that `dataset` calls."""
    return [wrapper.function for wrapper in dataset._functions()] if isinstance(dataset, tf.data.Dataset) else []


def operations_of_functions(dataset: Any) -> Iterator[set[str]]:
    """For each function that `dataset` calls, the types of the operations in it, and in the functions that it calls."""
    for definition in (function.graph.as_graph_def() for function in functions_of(dataset)):
        inner = [function.node_def for function in definition.library.function]
        yield {node.op for nodes in (definition.node, *inner) for node in nodes}


def captured_by(dataset: Any) -> list[Any]:
    """The tensors that functions which `dataset` calls have captured, as variables, tables and other datasets are."""
    return [tensor for function in functions_of(dataset) for tensor in function.captured_inputs]


def resources_of_functions(dataset: Any) -> set[int]:
    """The identities of the variables, tables and so on that functions which `dataset` calls have captured."""
    return {id(tensor) for tensor in captured_by(dataset) if tensor.dtype == tf.resource}


def kind_of(dataset: Any) -> str:
    """``ParallelMap``, of the class `_ParallelMapDataset`."""
    return type(dataset).__name__.lstrip("_").removesuffix("Dataset")


_FILE_OF_METHOD = re.compile(r"tensorflow\.python\.data\.(?:experimental\.)?ops\.(\w+)_op")
"""TensorFlow has a module for each method of `Dataset`, named after it."""
_OTHER_METHODS = {"Options": "with_options", "Variant": "from_variant"}


def method_of(dataset: Any) -> str:
    """What of `tf.data` a script calls to make a dataset: ``choose_from_datasets``, ``TFRecordDataset``."""
    kind = kind_of(dataset)
    if kind == "DirectedInterleave":
        return _method_with_function_of(inputs_of(dataset)[0]) or "choose_from_datasets"
    if kind == "Zip" and inputs_by_method(dataset):
        return "enumerate"
    of_file = _FILE_OF_METHOD.fullmatch(type(dataset).__module__)
    if method := _method_with_function_of(dataset) or _OTHER_METHODS.get(kind) or (of_file and of_file[1]):
        return method
    class_name = type(dataset).__name__.removesuffix("V2")
    return class_name if hasattr(tf.data, class_name) else re.sub("(?<=[a-z])(?=[A-Z])", "_", kind).lower()


def inputs_by_method(dataset: Any) -> list[Any]:
    """The inputs that the method of a dataset has made: numbers that choose among others, or stand beside elements."""
    inputs, kind = inputs_of(dataset), kind_of(dataset)
    is_made = (
        kind == "DirectedInterleave"
        or (kind == "Zip" and kind_of(inputs[0]) == "Variant")
        or _method_with_function_of(dataset) == "from_generator"
    )
    return inputs[:1] if is_made else []


def calls_function_of_script(dataset: Any) -> bool:
    """Whether the function that a map or the like was given is not TensorFlow's own."""
    return given_function_of(dataset) is not None and not _method_with_function_of(dataset)


def _method_with_function_of(dataset: Any) -> str:
    """The method in whose file of TensorFlow's the function of a dataset is; empty: the function is the script's."""
    of_file = _FILE_OF_METHOD.fullmatch(getattr(given_function_of(dataset), "__module__", None) or "")
    return of_file[1] if of_file else ""


def num_tensors_of(element_spec: Any) -> int:
    """How many tensors a traced function takes, or returns, for an element of this spec."""
    return sum(len(leaf._flat_tensor_specs) for leaf in tf.nest.flatten(element_spec))


def traced_function_of(dataset: Any) -> Any:
    """The traced function of a map: takes and returns tensors, in the order of `tf.nest`. None: there is none."""
    function = getattr(getattr(dataset, "_map_func", None), "function", None)
    return function if hasattr(function, "captured_inputs") else None


def given_function_of(dataset: Any) -> Any:
    """The Python function that a map, filter or the like was given; None: there is none."""
    return next((wrapper._func for wrapper in dataset._functions()), None)


def options_of_map(dataset: Any) -> dict[str, Any]:
    """What `Dataset.map` was given besides the function, and not left out."""
    options: dict[str, Any] = {}
    if hasattr(dataset, "_num_parallel_calls"):
        options["num_parallel_calls"] = dataset._num_parallel_calls
    if (deterministic := getattr(dataset, "_deterministic", "default")) != "default":
        options["deterministic"] = deterministic == "true"
    if getattr(dataset, "_use_unbounded_threadpool", None):
        options["use_unbounded_threadpool"] = True
    if getattr(dataset, "_force_synchronous", False):
        options["synchronous"] = True
    return options


def unbounded_threads() -> dict[str, Any]:
    """Options of `Dataset.map` with which calls that wait need not wait for one of as many threads as cores."""
    name = "use_unbounded_threadpool"
    return {name: True} if name in inspect.signature(tf.data.Dataset.map).parameters else {}


def options_of_batch(dataset: Any) -> dict[str, Any] | None:
    """What `Dataset.batch` was given, and not left out; None: that is not known before it runs."""
    size, drops = (tf.get_static_value(getattr(dataset, name, None)) for name in ("_batch_size", "_drop_remainder"))
    if size is None or drops is None:
        return None
    options: dict[str, Any] = {"batch_size": int(size), "drop_remainder": bool(drops)}
    if hasattr(dataset, "_num_parallel_calls"):
        options["num_parallel_calls"] = dataset._num_parallel_calls
    if (deterministic := getattr(dataset, "_deterministic", "default")) != "default":
        options["deterministic"] = deterministic == "true"
    return options


def options_of_interleave(dataset: Any) -> tuple[Any, int, int] | None:
    """The traced function of an interleave, its cycle and block length; None: it is none."""
    if (
        kind_of(dataset) not in ("Interleave", "ParallelInterleave")
        or (function := traced_function_of(dataset)) is None
    ):
        return None
    cycle, block = (int(getattr(dataset, name)) for name in ("_cycle_length", "_block_length"))
    return function, cycle, block


def count_of(dataset: Any) -> Any:
    """Elements of a take or skip, or times of a repeat: an int64 scalar."""
    return dataset._count


def read_ahead_of(dataset: Any) -> int:
    """Elements in the buffer of a prefetch."""
    return int(dataset._buffer_size)


def zipped_of(dataset: Any) -> Any:
    """The structure of the datasets of a zip."""
    return dataset._datasets


def has_state(operation: str) -> bool:
    """Whether operations of this type have a state or effects; also of types that TensorFlow does not know here."""
    definition = op_def_registry.get(operation)
    return definition is None or bool(definition.is_stateful)


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


_SEEDS = "_paceline_seeds"


class Seeds:
    """A generator of seeds, from which one shuffle draws, or several do.

    Args:
        like: A shuffle: it draws, from its first number on, what that of the shuffle draws.
    """

    def __init__(self, like: Any) -> None:
        self.draws: Any = None
        """How many there were, for `order/seed_draws.py`, once somebody has asked."""
        self.handle, _ = tf.raw_ops.AnonymousSeedGenerator(
            seed=like._seed, seed2=like._seed2, reshuffle=like._reshuffle_each_iteration
        )


def share_seeds_of(shuffle: Any) -> None:
    """Lets other shuffles draw their seeds from the generator of a new one; else that is hidden in the operation.

    Orders stay those of TensorFlow's own, whichever of the shuffles draws next.
    """
    setattr(shuffle, _SEEDS, Seeds(shuffle))
    shuffle._variant_tensor_attr = _variant_of_shuffle(shuffle)


def has_shared_seeds(shuffle: Any) -> bool:
    """Whether `shuffled_alike` can be called."""
    return hasattr(shuffle, _SEEDS)


def seeds_of(shuffle: Any) -> Seeds:
    """The generator from which a shuffle of `has_shared_seeds` draws."""
    seeds: Seeds = getattr(shuffle, _SEEDS)
    return seeds


def is_reshuffled(shuffle: Any) -> bool:
    """Whether each iterator has another order."""
    return bool(shuffle._reshuffle_each_iteration)


def is_seeded(shuffle: Any) -> bool:
    """Whether another generator with the same seeds draws the same numbers: two zeros stand for chance."""
    return any(int(seed) for seed in (shuffle._seed, shuffle._seed2))


def shuffled_alike(rows: Any, shuffle: Any, *, seeds: Seeds | None = None, buffer_size: int | None = None) -> Any:
    """A dataset of as many other rows in the order of `shuffle`; both draw their seeds in turn, or from `seeds`."""
    again = object.__new__(ShuffleDataset)
    for name in ("_buffer_size", "_seed", "_seed2", "_reshuffle_each_iteration", "_name"):
        setattr(again, name, getattr(shuffle, name))
    setattr(again, _SEEDS, seeds or seeds_of(shuffle))
    if buffer_size is not None:
        again._buffer_size = tf.constant(buffer_size, tf.int64)
    again._input_dataset = rows
    super(ShuffleDataset, again).__init__(rows, _variant_of_shuffle(again))
    return again


def mapped_alike(rows: Any, one: Any) -> Any:
    """What a map does to its source, done to a dataset of as many other rows; nothing is traced again."""
    function, kind = one._map_func.function, type(one)
    again = object.__new__(kind)
    vars(again).update(vars(one), _input_dataset=rows)
    given = {
        "input_dataset": variant_of(rows),
        "other_arguments": function.captured_inputs,
        "f": function,
        "use_inter_op_parallelism": one._use_inter_op_parallelism,
        "preserve_cardinality": one._preserve_cardinality,
        **one._common_args,
    }
    if kind_of(one) == "Map":
        if hasattr(one, "_force_synchronous"):  # TensorFlow 2.18 and later
            given["force_synchronous"] = one._force_synchronous
        variant = tf.raw_ops.MapDataset(**given)
    else:
        variant = tf.raw_ops.ParallelMapDatasetV2(
            **given,
            num_parallel_calls=one._num_parallel_calls,
            deterministic=one._deterministic,
            use_unbounded_threadpool=one._use_unbounded_threadpool,
        )
    super(kind, again).__init__(rows, variant)
    return again


def calls_of(dataset: Any) -> int:
    """Parallel calls of a map, or batch, that has some; negative: AUTOTUNE, also of any other."""
    return int(getattr(dataset, "_num_parallel_calls", tf.data.AUTOTUNE))


def _variant_of_shuffle(shuffle: Any) -> Any:
    return tf.raw_ops.ShuffleDatasetV3(
        input_dataset=variant_of(shuffle._input_dataset),
        buffer_size=shuffle._buffer_size,
        seed=shuffle._seed,
        seed2=shuffle._seed2,
        seed_generator=seeds_of(shuffle).handle,
        reshuffle_each_iteration=shuffle._reshuffle_each_iteration,
        **shuffle._common_args,
    )


def is_shard_hint(dataset: Any) -> bool:
    """Whether a dataset is `.shard(SHARD_HINT, SHARD_HINT)` of another one."""
    return kind_of(dataset) == "Shard" and int(dataset._num_shards) == tf.data.experimental.SHARD_HINT


def auto_sharded(dataset: Any, rank: int, size: int) -> Any:
    """`dataset`, divided as the option `auto_shard_policy` says.

    Raises:
        tf.errors.NotFoundError: there are no files in it.
    """
    return _AutoShardDataset(dataset, size, rank, size)


def is_vectorised(kind: str) -> bool:
    """Whether `tf.vectorized_map` knows operations of this kind; `tf.io.decode_raw`, which it does not, is added."""
    if "DecodeRaw" not in pfor._pfor_converter_registry:

        @pfor.RegisterPFor("DecodeRaw")  # type: ignore[untyped-decorator]
        def decode(of_rows: Any) -> Any:
            options = {name: of_rows.get_attr(name) for name in ("out_type", "little_endian")}
            return pfor.wrap(tf.raw_ops.DecodeRaw(bytes=of_rows.stacked_input(0), **options), True)

    return kind in pfor._pfor_converter_registry


def writes_file(dataset: Any) -> bool:
    """Whether iterators over a dataset write a file as they go: a cache in a file, a snapshot of TensorFlow's."""
    kind = type(dataset).__name__
    if "Cache" in kind:
        name = getattr(dataset, "_filename", None)
        return name is not None and bool(name.numpy())
    return "SnapshotDataset" in kind


def model_of(iterator: Any) -> Any:
    """What TensorFlow has counted of an iterator that is tuned: a `ModelProto`, with a node for each stage."""
    found = model_pb2.ModelProto()
    found.ParseFromString(tf.raw_ops.IteratorGetModelProto(iterator=resource_of(iterator)).numpy())
    return found


def resource_of(iterator: Any) -> Any:
    """What TensorFlow's operations know a `tf.data` iterator by."""
    return iterator._iterator_resource


def dataset_of(iterator: Any) -> Any:
    """What an iterator goes through; None if it does not say."""
    return getattr(iterator, "_dataset", None)
