"""Collectives as operations of a TensorFlow graph.

TensorFlow runs operations that do not depend on each other in any order, and `numpy_function`s know no order at all:
two collectives of one graph would run in one order on rank 0 and in another on rank 1, and each would meet the wrong
peer. So each takes its turn at a *token*, a variable:

    read and write token ─► collective A ─► read and write token ─► collective B ─► …

TensorFlow's automatic control dependencies keep operations on one variable in program order, through nested functions,
conditionals and loops alike; a chain of control dependencies within one graph would end at its border.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.communicator import Array, Reduction
from paceline.comm.world import World
from paceline.strategy.as_written import as_written
from paceline.strategy.compat import ResourceVariable


class GraphCollectives:
    """The world's collectives on tensors, eagerly or inside `tf.function`.

    All methods are collective in the sense of `Communicator`: every rank builds and runs the same calls in one order.

    Args:
        world: Whose communicator carries the bytes. The group is formed when the first collective runs.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._token: Any = None

    @as_written
    def all_reduce(self, tensors: Sequence[Any], reduction: Reduction = Reduction.SUM) -> list[Any]:
        """Combines each tensor over the ranks; shapes and dtypes as in, equal on all ranks."""
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if self._world.size == 1:
            return [tf.identity(tensor) for tensor in tensors]
        results = self._run(
            lambda *arrays: self._world.communicator.all_reduce(arrays, reduction),
            tensors,
            [tensor.dtype for tensor in tensors],
        )
        for result, tensor in zip(results, tensors, strict=True):
            result.set_shape(tensor.shape)
        return results

    @as_written
    def all_gather(self, tensor: Any) -> Any:
        """Concatenates the ranks' tensors along the first axis, in rank order; rows per rank may differ."""
        tensor = tf.convert_to_tensor(tensor)
        if self._world.size == 1:
            return tf.identity(tensor)

        def gather(array: Array) -> list[Array]:
            return [np.concatenate(self._world.communicator.all_gather(array))]

        [result] = self._run(gather, [tensor], [tensor.dtype])
        result.set_shape(tf.TensorShape([None]).concatenate(tensor.shape[1:]))
        return result

    @as_written
    def broadcast(self, tensors: Sequence[Any]) -> list[Any]:
        """The chief's tensors on every rank; shapes and dtypes equal on all ranks."""
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        if self._world.size == 1:
            return [tf.identity(tensor) for tensor in tensors]
        results = self._run(
            lambda *arrays: self._world.communicator.broadcast(arrays),
            tensors,
            [tensor.dtype for tensor in tensors],
        )
        for result, tensor in zip(results, tensors, strict=True):
            result.set_shape(tensor.shape)
        return results

    def _run(self, call: Callable[..., list[Array]], tensors: list[Any], dtypes: list[Any]) -> list[Any]:
        def guarded(*arrays: Array) -> list[Array]:
            try:
                return call(*arrays)
            except BaseException as error:
                self._world.fatal = self._world.fatal or error
                raise

        if tf.executing_eagerly():
            return [tf.convert_to_tensor(array) for array in guarded(*[tensor.numpy() for tensor in tensors])]
        with tf.device("/device:CPU:0"):
            with tf.control_dependencies([self._take_turn()]):
                results = tf.numpy_function(guarded, tensors, dtypes, stateful=True)
            if not isinstance(results, list):
                results = [results]
            with tf.control_dependencies(results):
                self._take_turn()
        return results

    def _take_turn(self) -> Any:
        """Reads and writes the token, which orders everything around it."""
        if self._token is None:
            with tf.init_scope(), tf.device("/device:CPU:0"):
                self._token = ResourceVariable(0, trainable=False, dtype=tf.int64, name="paceline_turn")
        return self._token.assign_add(1, read_value=False)
