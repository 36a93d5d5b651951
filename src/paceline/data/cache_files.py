"""`Dataset.cache(filename)` in a job: each process has files of its own, whose name says which rank of how many it is.

    .cache("rows")        rank 0 of 2: rows.rank-0-of-2.index, …     rank 1 of 2: rows.rank-1-of-2.index, …

TensorFlow lets one process write a cache: a second one fails. What a rank reads may depend on its number and on the
number of ranks, where a script divides its files; so neither another rank, nor a job of another size, nor a plain run
reads these files. A process that was killed leaves a half of a cache, at which TensorFlow fails, too. Whoever holds the
lock beside the cache is the only process that can be writing there, and removes such a half.
"""

import fcntl
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import tensorflow as tf

from paceline.cluster.launched import launched_identity
from paceline.cluster.mpi_launchers import announced_by_mpi
from paceline.cluster.schedulers import scheduled_place
from paceline.cluster.tf_config import read_tf_config
from paceline.comm.world import current_world
from paceline.errors import ConfigurationError

_HALVES = r"_\d+\.(lockfile|index|data-.*)"
"""TensorFlow's files of a cache that is not complete; those of a complete one have no number
(`tensorflow/core/kernels/data/cache_dataset_ops.cc`)."""

_locks: dict[str, int] = {}
"""The descriptors of the locks that this process holds until it ends, by the names of their caches."""


def of_own_name(cache: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlow's method."""

    def cached(self: Any, filename: Any = "", *args: Any, **kwargs: Any) -> Any:
        return cache(self, _own_name(filename), *args, **kwargs)

    return cached


def _own_name(filename: Any) -> Any:
    place = _place()
    if not place or (isinstance(filename, str) and not filename):
        return filename
    name = tf.convert_to_tensor(filename, tf.string)
    known = tf.get_static_value(name)
    if known is None:  # in a function of a dataset
        return tf.where(tf.equal(name, ""), name, tf.strings.join([name, f".{place}"]))
    text = os.fsdecode(known.item() if hasattr(known, "item") else known)
    if not text:
        return filename
    own = f"{text}.{place}"
    if "://" not in text:
        _remove_half(own)
    return own


def _place() -> str:
    """``rank-1-of-4``, ``evaluator-0``; empty in a process that is in no job."""
    identity = launched_identity(os.environ)
    if identity is not None:
        return _of_rank(identity.rank, identity.world_size) if identity.in_world else _of_task(str(identity.task))
    world = current_world()
    if world.size > 1:
        return _of_rank(world.rank, world.size)
    try:
        return _place_by_hand()
    except ConfigurationError:  # who makes the strategy is told
        return ""


def _place_by_hand() -> str:
    """That in a job which this process has not joined yet."""
    described = read_tf_config(os.environ)
    announced = None if described else announced_by_mpi(os.environ)
    if announced is not None and announced.size > 1:
        return _of_rank(announced.rank, announced.size)
    if described is None and (scheduled := scheduled_place(os.environ)) is not None:
        described = scheduled.cluster, scheduled.task
    if described is None:
        return ""
    cluster, task = described
    if task not in cluster.training_tasks:
        return _of_task(str(task))
    return _of_rank(cluster.rank_of(task), cluster.world_size) if cluster.world_size > 1 else ""


def _of_rank(rank: int, size: int) -> str:
    return f"rank-{rank}-of-{size}"


def _of_task(task: str) -> str:
    return task.replace(" ", "-")


def _remove_half(name: str) -> None:
    """Removes what a killed process has left of a cache, unless another process may be writing it."""
    path = Path(name).absolute()
    if str(path) in _locks:  # perhaps this process is writing it
        return
    with suppress(OSError):  # no place to write, or one that knows no locks: TensorFlow will say what is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        _locks[str(path)] = descriptor
        halves = re.compile(re.escape(path.name) + _HALVES)
        for one in path.parent.iterdir():
            if halves.fullmatch(one.name):
                one.unlink(missing_ok=True)


def _close_locks() -> None:
    for descriptor in _locks.values():
        os.close(descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_close_locks)  # else a child would keep them when this process has ended
