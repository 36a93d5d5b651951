"""Collectives that leave TensorFlow's graph: through Python to the world's communicator, and back."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.communicator import Array, Reduction
from paceline.strategy.graph_collectives import GraphCollectives


class BridgedCollectives(GraphCollectives):
    """`GraphCollectives` over a communicator that takes NumPy arrays (MPI). TensorFlow hands both sides' memory over.

    Args:
        world: Whose communicator carries the bytes. The group is formed when the first collective runs.
    """

    def _all_reduce(self, tensors: list[Any], reduction: Reduction) -> list[Any]:
        return self._call(lambda *arrays: self._world.communicator.all_reduce(arrays, reduction), tensors)

    def _all_gather(self, tensor: Any) -> Any:
        def gather(array: Array) -> list[Array]:
            return [np.concatenate(self._world.communicator.all_gather(array))]

        [result] = self._call(gather, [tensor])
        return result

    def _broadcast(self, tensors: list[Any]) -> list[Any]:
        return self._call(lambda *arrays: self._world.communicator.broadcast(arrays), tensors)

    def _call(self, call: Callable[..., list[Array]], tensors: list[Any]) -> list[Any]:
        """`call` on the tensors' arrays; it returns one array for each, of the same dtype."""

        def guarded(*arrays: Array) -> list[Array]:
            try:
                return call(*arrays)
            except BaseException as error:
                self._world.fatal = self._world.fatal or error
                raise

        if tf.executing_eagerly():
            return [tf.convert_to_tensor(array) for array in guarded(*[tensor.numpy() for tensor in tensors])]
        with tf.device("/device:CPU:0"):
            results = tf.numpy_function(guarded, tensors, [tensor.dtype for tensor in tensors], stateful=True)
        return results if isinstance(results, list) else [results]
