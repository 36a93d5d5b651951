"""From a dataset of global batches to this rank's part of each.

Every rank reads the same dataset and keeps its rows, so the union of the ranks' batches is exactly the batch that one
worker would have trained on, whatever the dataset does. That rests on all ranks seeing the same batches, in the same
order: order is made deterministic here, seeds are agreed before the script runs, and fingerprints (`fingerprint.py`)
prove it.
"""

import os
from typing import Any

import tensorflow as tf

from paceline.data.fingerprint import FingerprintLog
from paceline.data.slicing import local_slice

_MARK = "_paceline_local_batches"
_PREFETCHED_BATCHES = 2
_FEW_CORES = 2


def local_batches(
    dataset: Any,
    rank: int,
    size: int,
    *,
    log: FingerprintLog | None = None,
    steps_per_epoch: int | None = None,
) -> Any:
    """This rank's rows of each batch of `dataset`.

    Args:
        dataset: A `tf.data.Dataset` of global batches: tensors (dense or ragged) whose first axis counts rows.
        rank: This rank.
        size: Number of ranks; 1 leaves the rows as they are.
        log: Where to note fingerprints of each epoch's first global batch; None: nowhere.
        steps_per_epoch: Steps after which an epoch begins in a dataset that goes on; None: at its start only.

    Returns:
        A `tf.data.Dataset` of the same structure. A dataset that already is one of local batches is returned as it
        is, so `fit` may be given what `experimental_distribute_dataset` returned.
    """
    if is_local(dataset):
        return dataset
    if size > 1:
        dataset = _with_local_rows(dataset, rank, size, log, steps_per_epoch)
    return mark_as_local(dataset.with_options(_options(dataset, size)))


def mark_as_local(dataset: Any) -> Any:
    """`dataset`, remembered to hold this rank's rows already."""
    setattr(dataset, _MARK, True)
    return dataset


def is_local(dataset: Any) -> bool:
    """Whether `dataset` is known to hold this rank's rows already."""
    return bool(getattr(dataset, _MARK, False))


def _with_local_rows(dataset: Any, rank: int, size: int, log: FingerprintLog | None, steps: int | None) -> Any:
    def local_rows(index: Any, element: Any) -> Any:
        dependencies = [] if log is None else [log.note(index, element, steps)]
        with tf.control_dependencies(dependencies):
            return tf.nest.map_structure(lambda leaf: _local_part(leaf, rank, size), element)

    return dataset.enumerate().map(local_rows).prefetch(_PREFETCHED_BATCHES)


def _local_part(leaf: Any, rank: int, size: int) -> Any:
    """This rank's rows of one component; a scalar belongs to every rank."""
    if isinstance(leaf, tf.SparseTensor):
        begin, end = local_slice(leaf.dense_shape[0], rank, size)
        others = leaf.dense_shape[1:]
        return tf.sparse.slice(
            leaf, tf.concat([[begin], tf.zeros_like(others)], 0), tf.concat([[end - begin], others], 0)
        )
    if isinstance(leaf, tf.RaggedTensor):
        begin, end = local_slice(leaf.nrows(), rank, size)
        return leaf[begin:end]
    if not tf.is_tensor(leaf) or leaf.shape.rank == 0:
        return tf.identity(leaf)
    static_rows = leaf.shape[0] if leaf.shape.rank is not None else None
    begin, end = local_slice(tf.shape(leaf)[0] if static_rows is None else static_rows, rank, size)
    return leaf[begin:end]


def _options(dataset: Any, size: int) -> Any:
    """Options of the result: what the user has set stays, except an order that may differ between ranks."""
    options = tf.data.Options()
    if size > 1:
        options.deterministic = True
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    own = dataset.options()
    if cores <= _FEW_CORES and own.autotune.enabled is None:
        # The autotuner's thread sleeps for up to a minute and is joined at the end: fit would return seconds after
        # its last step. With so few cores there is nothing to tune: AUTOTUNE then means the size of the pool.
        options.autotune.enabled = False
        if own.threading.private_threadpool_size is None:
            options.threading.private_threadpool_size = cores
    return options
