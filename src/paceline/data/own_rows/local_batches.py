"""From a dataset of global batches to this rank's part of each.

Every rank reads the same dataset and keeps its rows, so the union of the ranks' batches is exactly the batch that one
worker would have trained on, whatever the dataset does. Where the stages of the dataset allow that (`stages.py`), the
rows are chosen before the maps, which then run on a rank's own rows only (`own_rows.py`). All that rests on all ranks
seeing the same batches, in the same order: order is made deterministic here, seeds are agreed before the script runs,
and fingerprints (`fingerprint.py`) prove it.

`AutoShardPolicy.OFF` says that the user has shared the data out: each rank then takes its own dataset whole, in batches
of its part of the global batch. So it is with FILE and HINT, after TensorFlow has shared the data out.

    one dataset, 2 ranks     rank 0: [0 1 2 3] ─► [0 1]           rank 1: [0 1 2 3] ─► [2 3]
    policy OFF               rank 0: [0 2 4 6] ─► [0 2] [4 6]     rank 1: [1 3 5 7] ─► [1 3] [5 7]
"""

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.cluster.control_groups import memory_bytes
from paceline.comm.world import current_world
from paceline.data import compat
from paceline.data.batch_rows import checked_rows, local_slice
from paceline.data.fingerprint import FingerprintLog
from paceline.data.foreign_memory import may_be_foreign, own_memory
from paceline.data.indexed.damaged_files import note_files_of
from paceline.data.items.item_rings import RingDivision
from paceline.data.order.stage_orders import say_made_in_order
from paceline.data.own_rows.array_batches import ArrayDivision, array_division_of, own_rows_of_arrays
from paceline.data.own_rows.auto_shard import how_divided, is_sharded_by_hand, sharded
from paceline.data.own_rows.index_batches import IndexDivision, index_division_of, own_rows_by_index
from paceline.data.own_rows.own_rows import own_rows
from paceline.data.own_rows.stages import Division, Whole, division_of

AnyDivision = Division | ArrayDivision | IndexDivision | RingDivision | Whole

_MARK = "_paceline_local_batches"
_FORM = "_paceline_form_of_batches"
_WORK = "_paceline_work"
_PREFETCHED_BATCHES = 2
_FEW_CORES = 2
_OF_BUFFERS = 2
"""The part of a process's memory that AUTOTUNE may fill, as in TensorFlow."""


def local_batches(
    dataset: Any,
    rank: int,
    size: int,
    *,
    log: FingerprintLog | None = None,
    reads_ahead: bool = True,
    division: AnyDivision | None = None,
) -> Any:
    """This rank's rows of each batch of `dataset`.

    Args:
        dataset: A `tf.data.Dataset` of global batches: tensors (dense, ragged or sparse) whose first axis counts rows.
            Equal on all ranks, unless its options say `AutoShardPolicy.OFF` (`auto_shard.py`).
        rank: This rank.
        size: Number of ranks; 1 leaves the rows as they are.
        log: Where to note fingerprints of global batches; None: nowhere. With one, others read the same batches.
        reads_ahead: Whether batches are read before a step asks for them.
        division: Where this rank's rows are chosen, from `divided`; None: it is asked.

    Returns:
        A `tf.data.Dataset` of the same structure; as it is, if it is one of local batches already.

    Raises:
        ValueError: elements without any axis: there are no rows to share out; or components that, by their shapes,
            differ in their number of rows. Where only a batch shows that, reading it fails.
    """
    if is_local(dataset):
        return dataset
    note_files_of(dataset)
    has_others, form = size > 1 or log is not None or isinstance(division, IndexDivision), WHOLE
    is_by_hand = size > 1 and is_sharded_by_hand(dataset)
    dataset = sharded(dataset, rank, size)
    if is_by_hand:
        dataset = _with_all_rows(dataset, rank, size) if _has_axes(dataset.element_spec) else dataset
    elif has_others:
        _check_batched(dataset, size)
        division = division or (divided(dataset) if size > 1 else Whole())
        form = form_of_division(division)
        dataset = _with_rows_of(division, dataset, rank, size, log)
        dataset = dataset.prefetch(_PREFETCHED_BATCHES) if reads_ahead else dataset
    elif reads_ahead and any(map(compat.writes_file, compat.with_sources(dataset))):
        dataset = dataset.prefetch(_PREFETCHED_BATCHES)  # TensorFlow drops a cache of which nobody has read the end
    if size > 1 and rank == 0 and dataset.options().deterministic is False:
        say_made_in_order("a dataset whose options say deterministic=False")
    local = mark_as_local(dataset.with_options(_options(dataset, has_others)))
    setattr(local, _FORM, form)
    setattr(local, _WORK, how_divided(dataset) if is_by_hand else work_of(division or Whole()))
    return local


def work_noted(dataset: Any) -> str:
    """What each rank does for the dataset from `local_batches` that `dataset` is made of; empty: it is of none."""
    return next((str(getattr(one, _WORK)) for one in compat.with_sources(dataset) if hasattr(one, _WORK)), "")


WHOLE = ""
"""The form of datasets whose batches are made whole by every rank."""


def divided(dataset: Any) -> AnyDivision:
    """Where a rank's rows are chosen in a dataset of global batches; nothing is read."""
    if is_local(dataset) or not (tf.executing_eagerly() and isinstance(dataset, tf.data.Dataset)):
        return Whole()
    return index_division_of(dataset) or array_division_of(dataset) or division_of(dataset)


def work_of(division: AnyDivision) -> str:
    """What each rank reads and makes, and what it would rather not make; for a line of a log."""
    if isinstance(division, RingDivision | Whole):
        work = division.work
    elif isinstance(division, ArrayDivision):
        work = "each rank gathers and computes its rows of each batch"
    elif isinstance(division, IndexDivision):
        work = division.source.work
    else:
        work = f"every rank reads all data, and maps ({', '.join(division.mapped)}) and computes its rows of each batch"
    return f"{work}; {division.stays}" if division.stays else work


def form_of_division(division: AnyDivision) -> str:
    """What two datasets of local batches must have in common, if an iterator over one is to have the other's state."""
    return WHOLE if isinstance(division, Whole) else division.form


def form_of(dataset: Any) -> str:
    """That of the dataset from `local_batches` that `dataset` is, or is made of; `WHOLE` without one."""
    return next((str(getattr(one, _FORM)) for one in compat.with_sources(dataset) if hasattr(one, _FORM)), WHOLE)


def mark_as_local(dataset: Any) -> Any:
    """`dataset`, remembered to hold this rank's rows already."""
    setattr(dataset, _MARK, True)
    return dataset


def is_local(dataset: Any) -> bool:
    """Whether `dataset` is known to hold this rank's rows already."""
    return bool(getattr(dataset, _MARK, False))


def _has_axes(element_spec: Any) -> bool:
    return any(getattr(getattr(leaf, "shape", None), "rank", None) != 0 for leaf in tf.nest.flatten(element_spec))


def _check_batched(dataset: Any, size: int) -> None:
    if not _has_axes(dataset.element_spec):
        raise ValueError(
            f"the elements of the dataset are scalars ({dataset.element_spec}), so there are no rows to divide "
            f"among {size} replicas. Batch the dataset first: `dataset.batch(global_batch_size)` [not-batched]"
        )


def _with_rows_of(division: AnyDivision, dataset: Any, rank: int, size: int, log: FingerprintLog | None) -> Any:
    if isinstance(division, Whole):
        return _with_local_rows(dataset, rank, size, log)
    if isinstance(division, RingDivision):
        return division.dataset(log).with_options(dataset.options())
    if isinstance(division, IndexDivision):  # an iterator that goes on has fewer batches than its dataset
        return own_rows_by_index(division, rank, size, log).with_options(dataset.options())
    build: Any = own_rows_of_arrays if isinstance(division, ArrayDivision) else own_rows
    own = build(division, rank, size, log)
    if (batches := int(dataset.cardinality())) != tf.data.UNKNOWN_CARDINALITY:
        own = own.apply(tf.data.experimental.assert_cardinality(batches))
    return own.with_options(dataset.options())


def _with_local_rows(dataset: Any, rank: int, size: int, log: FingerprintLog | None) -> Any:
    is_copied = may_be_foreign(dataset)

    # It has no Python `if` that depends on a tensor: rewriting it would take a second of each start.
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def local_rows(index: Any, element: Any) -> Any:
        bounds: list[Any] = []

        def own(leaf: Any) -> Any:
            if not tf.is_tensor(leaf) or isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) or _knows_rows(leaf):
                return own_part(leaf, lambda rows: local_slice(rows, rank, size))
            if not bounds:  # vectors of one number; all components have equally many rows
                rows = tf.raw_ops.StridedSlice(input=tf.shape(leaf), begin=[0], end=[1], strides=[1])
                bounds.extend(local_slice(rows, rank, size))
            return tf.raw_ops.StridedSlice(input=leaf, begin=bounds[0], end=bounds[1], strides=[1])

        element = own_memory(element) if is_copied else element
        checked = checked_rows(element)
        with tf.control_dependencies([] if checked is None else [checked]):
            noted = [] if log is None else [log.note(index, element)]
        with tf.control_dependencies([*noted, *([] if checked is None else [checked])]):
            return tf.nest.map_structure(own, element)

    return dataset.enumerate().map(local_rows)


def _knows_rows(leaf: Any) -> bool:
    """Whether the shape of a tensor has its number of rows, or has none."""
    return leaf.shape.rank is not None and (leaf.shape.rank == 0 or leaf.shape[0] is not None)


def _with_all_rows(dataset: Any, rank: int, size: int) -> Any:
    """Each batch of this rank's own dataset in up to `size` parts, one after the other.

    The parts have the sizes of the ranks' slices, this rank's first: over ranks, those of a step add up to a batch. A
    batch that is smaller than one before it (the last one) fills as many of the parts as it can.
    """

    is_copied = may_be_foreign(dataset)

    def with_full_size(largest: Any, index_and_element: Any) -> tuple[Any, Any]:
        _, element = index_and_element
        element = own_memory(element) if is_copied else element
        largest = tf.maximum(largest, rows_of(element))
        return largest, (largest, element)

    def parts(full: Any, element: Any) -> Any:
        rows = rows_of(element)

        def part_of(number: Any) -> Any:
            def slice_of(_: Any) -> tuple[Any, Any]:
                begin, end = _begin(full, rank, number, size), _begin(full, rank, number + 1, size)
                return begin, tf.minimum(end, rows)

            return tf.nest.map_structure(lambda leaf: own_part(leaf, slice_of), element)

        numbers = tf.data.Dataset.range(size)
        return numbers.filter(lambda number: (rows == full) | (_begin(full, rank, number, size) < rows)).map(part_of)

    numbered = dataset.enumerate()  # keeps a tuple of components one element
    return numbered.scan(tf.constant(0, tf.int64), with_full_size).flat_map(parts).prefetch(_PREFETCHED_BATCHES)


def rows_of(element: Any) -> Any:
    """int64 scalar: the rows of the first component that has any axis; 1 of scalars only."""
    for leaf in tf.nest.flatten(element):
        if isinstance(leaf, tf.RaggedTensor):
            return tf.cast(leaf.nrows(), tf.int64)
        if isinstance(leaf, tf.SparseTensor):
            return leaf.dense_shape[0]
        if (tf.is_tensor(leaf) and leaf.shape.rank != 0) or (isinstance(leaf, np.ndarray) and leaf.ndim):
            return tf.shape(leaf, tf.int64)[0]
    return tf.constant(1, tf.int64)


def _begin(rows: Any, rank: int, number: Any, size: int) -> Any:
    """Rows before part `number`, when the parts are the slices rank, rank + 1, … of `size`, round about."""
    first, _ = local_slice(rows, rank, size)
    next_, _ = local_slice(rows, (rank + number) % size, size)
    return next_ - first + rows * ((rank + number) // size)


def own_part(leaf: Any, slice_of: Callable[[Any], tuple[Any, Any]]) -> Any:
    """The rows of one component that `slice_of` their number says; a scalar, or None, belongs to every rank."""
    if isinstance(leaf, tf.SparseTensor):
        begin, end = slice_of(leaf.dense_shape[0])
        others = leaf.dense_shape[1:]
        return tf.sparse.slice(
            leaf, tf.concat([[begin], tf.zeros_like(others)], 0), tf.concat([[end - begin], others], 0)
        )
    if isinstance(leaf, tf.RaggedTensor):
        begin, end = slice_of(leaf.nrows())
        return leaf[begin:end]
    if leaf is None:
        return None
    if not tf.is_tensor(leaf) or leaf.shape.rank == 0:
        return tf.identity(leaf)
    static_rows = leaf.shape[0] if leaf.shape.rank is not None else None
    begin, end = slice_of(tf.shape(leaf)[0] if static_rows is None else static_rows)
    return leaf[begin:end]


def _options(dataset: Any, has_others: bool) -> Any:
    """Options of the result: what the user has set stays, except an order that may differ between ranks."""
    options = tf.data.Options()
    if has_others:
        options.deterministic = True
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    own = dataset.options()
    if cores <= _FEW_CORES and own.autotune.enabled is None:
        # The autotuner's thread sleeps for up to a minute and is joined at the end: fit would return seconds after
        # its last step. With so few cores there is nothing to tune: AUTOTUNE then means the size of the pool.
        options.autotune.enabled = False
        if own.threading.private_threadpool_size is None:
            options.threading.private_threadpool_size = cores
    if own.autotune.ram_budget is None:
        options.autotune.ram_budget = memory_share() // _OF_BUFFERS
    return options


def memory_share() -> int:
    """Bytes that a worker may use: the host's, or its control group's, divided by the workers on the host."""
    return _memory_of_host() // current_world().identity.local_world_size


@functools.cache
def _memory_of_host() -> int:
    return memory_bytes()
