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
from typing import Any

import tensorflow as tf

from paceline.cluster.control_groups import memory_bytes
from paceline.comm.world import current_world
from paceline.data import compat
from paceline.data.batch_rows import checked_rows, local_slice
from paceline.data.faults import note_files_of
from paceline.data.fingerprint import FingerprintLog
from paceline.data.foreign_memory import may_be_foreign, own_memory
from paceline.data.order.stage_orders import say_made_in_order
from paceline.data.own_rows.array_batches import array_division_of
from paceline.data.own_rows.auto_shard import how_divided, is_sharded_by_hand, sharded
from paceline.data.own_rows.division import AnyDivision, Whole, divided_so, own_part, rows_of
from paceline.data.own_rows.index_batches import IndexDivision, index_division_of
from paceline.data.own_rows.share_table import ShareTable
from paceline.data.own_rows.stages import division_of

_MARK = "_paceline_local_batches"
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
    table: ShareTable | None = None,
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
        table: The shares of each batch; None: they stay.

    Returns:
        A `tf.data.Dataset` of the same structure; as it is, if it is one of local batches already.

    Raises:
        ValueError: elements without any axis: there are no rows to share out; or components that, by their shapes,
            differ in their number of rows. Where only a batch shows that, reading it fails.
    """
    if is_local(dataset):
        return dataset
    note_files_of(dataset)
    has_others = size > 1 or log is not None or isinstance(division, IndexDivision)
    is_by_hand = size > 1 and is_sharded_by_hand(dataset)
    dataset = sharded(dataset, rank, size)
    if is_by_hand:
        division = Whole(work=how_divided(dataset))
        dataset = _with_all_rows(dataset, rank, size) if _has_axes(dataset.element_spec) else dataset
    elif has_others:
        _check_batched(dataset, size)
        division = division or (divided(dataset) if size > 1 else Whole())
        dataset = division.batches(dataset, rank, size, log, table)
        dataset = dataset.prefetch(_PREFETCHED_BATCHES) if reads_ahead else dataset
    elif reads_ahead and any(map(compat.writes_file, compat.with_sources(dataset))):
        dataset = dataset.prefetch(_PREFETCHED_BATCHES)  # TensorFlow drops a cache of which nobody has read the end
    if size > 1 and rank == 0 and dataset.options().deterministic is False:
        say_made_in_order("a dataset whose options say deterministic=False")
    local = mark_as_local(dataset.with_options(_options(dataset, has_others)))
    return divided_so(local, division or Whole())


def divided(dataset: Any) -> AnyDivision:
    """Where a rank's rows are chosen in a dataset of global batches; nothing is read."""
    if is_local(dataset) or not (tf.executing_eagerly() and isinstance(dataset, tf.data.Dataset)):
        return Whole()
    return index_division_of(dataset) or array_division_of(dataset) or division_of(dataset)


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


def _with_all_rows(dataset: Any, rank: int, size: int) -> Any:
    """Each batch of this rank's own dataset in up to `size` parts, one after the other.

    The parts have the sizes of the ranks' slices, this rank's first: over ranks, those of a step add up to a batch. A
    batch that is smaller than one before it (the last one) fills as many of the parts as it can.
    """

    is_copied = may_be_foreign(dataset)

    def with_full_size(largest: Any, index_and_element: Any) -> tuple[Any, Any]:
        _, element = index_and_element
        element = own_memory(element) if is_copied else element
        checked = checked_rows(element)
        with tf.control_dependencies([] if checked is None else [checked]):
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


def _begin(rows: Any, rank: int, number: Any, size: int) -> Any:
    """Rows before part `number`, when the parts are the slices rank, rank + 1, … of `size`, round about."""
    first, _ = local_slice(rows, rank, size)
    next_, _ = local_slice(rows, (rank + number) % size, size)
    return next_ - first + rows * ((rank + number) // size)


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
