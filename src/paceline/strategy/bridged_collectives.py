"""The two kinds of collectives in graphs.

Bridged ones leave TensorFlow's graph, through Python to the group, and come back. Native ones are TensorFlow's own
operations: no Python, and on GPUs no copy to the host.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.cluster.communication import Communication
from paceline.comm.counted_group import CountedGroup
from paceline.comm.group import Array, Reduction
from paceline.comm.step_clock import NUM_NUMBERS
from paceline.comm.tensorflow_collectives import TensorCollectives, TensorFlowGroup
from paceline.comm.world import World
from paceline.data.batch_rows import local_slice
from paceline.strategy.graph_collectives import GraphCollectives
from paceline.strategy.python_calls import PythonCall


def total_and_first_row(world: World, rows: int) -> tuple[int, int]:
    """How many rows all ranks have, and how many those before this one. Collective.

    The ranks' flags and clocks go with them. Each rank's `World` receives those, and what rows are shared out by hears
    of the step, if it does so on all ranks.

    Args:
        world: Whose replicas talk, those on its axis `data`.
        rows: This rank's; a large negative number says that its data has come to its end.
    """
    replicas, sharing = world.data, world.sharing
    rank, size = replicas.rank, replicas.size
    own = np.zeros(2 + size * (1 if sharing is None else 2), np.int64)  # flags, rows, rows by rank, batches by rank
    own[0], own[1], own[2 + rank] = world.flags.own, rows, rows
    try:
        clocks = world.clock.count_begins(rank, size)
        if sharing is not None and world.clock.is_in_step:
            own[2 + size + rank] = sharing.step_begins()
        [told] = replicas.all_reduce([np.concatenate([own, clocks])])
        total, clocks = int(told[1]), told[len(own) :]
        first = world.clock.count_ended(size, clocks, takes_place=total > 0)
        if sharing is not None:
            of_rows, num_batches = told[2 : 2 + size], told[2 + size : len(own)]
            if first is not None and num_batches.min() > 0:  # else some rank shares nothing out in this step
                sharing.hear(first, clocks.reshape(-1, NUM_NUMBERS), of_rows, int(num_batches.max()))
    finally:
        if sharing is not None:
            sharing.step_has_begun()
    world.flags.receive(int(told[0]))
    return total, int(told[2 : 2 + rank].sum())


class BridgedCollectives(GraphCollectives):
    """`GraphCollectives` over a group that takes NumPy arrays (MPI). TensorFlow hands both sides' memory over.

    Args:
        world: This process's place in the job.
        group: Carries the bytes. It is formed when the first collective runs.
    """

    def __init__(self, world: World, group: CountedGroup) -> None:
        super().__init__(world, group)
        self._reductions = {
            reduction: self._message(lambda *arrays, by=reduction: group.all_reduce(arrays, by))
            for reduction in Reduction
        }
        self._counting = self._guarded(functools.partial(_total_and_first, world))
        self._gathering = self._message(lambda array: [np.concatenate(group.all_gather(array))])
        self._broadcasting = self._message(lambda *arrays: group.broadcast(arrays))

    def _count_rows(self, rows: Any) -> list[Any]:
        return self._counting([rows, rows])  # as many as there are results

    def _all_reduce(self, tensors: list[Any], reduction: Reduction) -> list[Any]:
        return self._reductions[reduction](tensors)

    def _all_gather(self, tensor: Any) -> Any:
        return self._gathering([tensor])[0]

    def _broadcast(self, tensors: list[Any]) -> list[Any]:
        return self._broadcasting(tensors)

    def _message(self, function: Callable[..., list[Array]]) -> Callable[[list[Any]], list[Any]]:
        """As `_guarded`; the clock says how long it takes."""
        clock = self._world.clock

        def timed(*arrays: Array) -> list[Array]:
            clock.message_begins()
            try:
                return function(*arrays)
            finally:
                clock.message_ended()

        return self._guarded(timed)

    def _guarded(self, function: Callable[..., list[Array]]) -> Callable[[list[Any]], list[Any]]:
        """From tensors to tensors of the same dtypes, by way of `function` on arrays, eagerly or in a graph."""

        def guarded(*arrays: Array) -> list[Array]:
            try:
                return function(*arrays)
            except BaseException as error:
                self._world.fatal = self._world.fatal or error
                raise

        call = PythonCall(guarded)

        def on_tensors(tensors: list[Any]) -> list[Any]:
            if tf.executing_eagerly():
                return [tf.convert_to_tensor(array) for array in guarded(*[tensor.numpy() for tensor in tensors])]
            return call.in_graph(tensors)

        return on_tensors


def _total_and_first(world: World, rows: Array, _: Array) -> list[Array]:
    return [np.array(number, np.int64) for number in total_and_first_row(world, int(rows))]


def graph_collectives_of(world: World, group: CountedGroup) -> GraphCollectives:
    """The collectives of a group of `world` as operations of a graph, over what carries its numbers."""
    if world.communication is Communication.MPI:
        return BridgedCollectives(world, group)
    return NativeCollectives(world, group)


class NativeCollectives(GraphCollectives):
    """`GraphCollectives` over TensorFlow's RING or NCCL.

    Args:
        world: One that `collective_runtime.py` has connected.
        group: Of several of its ranks. It is formed when the first collective is built.
    """

    def _count_rows(self, rows: Any) -> list[Any]:
        [total] = self._tensors.all_reduce([rows], Reduction.SUM)
        return [total, local_slice(total, self._group.rank, self._group.size)[0]]

    def _all_reduce(self, tensors: list[Any], reduction: Reduction) -> list[Any]:
        return self._tensors.all_reduce(tensors, reduction)

    def _all_gather(self, tensor: Any) -> Any:
        return tf.concat(self._tensors.all_gather(tensor), 0)

    def _broadcast(self, tensors: list[Any]) -> list[Any]:
        return self._tensors.broadcast(tensors)

    @property
    def _tensors(self) -> TensorCollectives:
        inner = self._group.inner  # forms the group: its watcher hears of it
        assert isinstance(inner, TensorFlowGroup)
        return inner.tensors
