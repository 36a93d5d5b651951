"""Worlds whose ranks are threads of this process: strategies without starting processes."""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.comm.world import World
from paceline.strategy.base import SynchronousStrategy
from thread_groups import thread_groups

_LIMIT_SECONDS = 60
_MAX_RANKS = 8

# The ranks share this process's pool, and each blocks a thread of it in a collective: as many as cores would deadlock.
tf.config.threading.set_inter_op_parallelism_threads(2 * _MAX_RANKS)


def on_each_rank(size: int, function: Callable[[SynchronousStrategy], Any]) -> list[Any]:
    """What `function` returns on each rank of a world of `size`, given that rank's strategy."""

    def run(group: Any) -> Any:
        identity = WorkerIdentity(
            task=Task(WORKER, group.rank),
            rank=group.rank,
            world_size=size,
            local_rank=group.rank,
            local_world_size=size,
            generation=1,
            job_id="threads",
            seed=1,
        )
        return function(SynchronousStrategy(World(identity, lambda: group), "/cpu:0"))

    with concurrent.futures.ThreadPoolExecutor(size) as threads:
        started = [threads.submit(run, group) for group in thread_groups(size)]
        return [one.result(_LIMIT_SECONDS) for one in started]
