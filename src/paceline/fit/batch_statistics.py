"""`--batch-statistics local`: BatchNormalization in a divided step normalizes by the rows of each worker.

    exact   mean and variance of the whole batch ─► messages in the middle of the step, for each layer and its gradient
    local   for each row, those of its worker's rows (`spmd/rules/own_rows.py`) ─► none; the averages of the statistics,
            which the moving ones take, travel at the end of the step, with the gradients

A row counts as much as any other in these averages, or as much as its mask says, so the moving mean is that of the
whole batch; the moving variance lacks the variance between workers, as it does in `tf.distribute` and Horovod.

A step that is not divided has one group of rows: the numbers of plain Keras.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from paceline.comm.world import World, current_world
from paceline.fit import own_loops
from paceline.spmd.compat import implemented_by
from paceline.spmd.rules.own_rows import NAME, sum_over_own_rows
from paceline.strategy.as_one_worker import is_as_one_worker
from paceline.strategy.compat import get_default_graph
from paceline.strategy.per_thread import PerThread

_LOGGER = logging.getLogger("paceline")

Function = Callable[..., Any]

_LAYERS = "_paceline_layers_by_own_rows"
_MOST_NAMES = 4


def of_own_rows(keras_call: Function) -> Function:
    """Keras's `BatchNormalization.call`, by the rows of each worker where that is wanted and the step may be divided.

    Layers with `synchronized=True` stay as they are. So do those with `renorm=True`, which older versions of Keras do
    not have, and those that normalize along the rows.
    """

    def call(self: Any, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if not (training and self.trainable and _can_be_divided(self, inputs, mask) and _is_wanted()):
            return keras_call(self, inputs, training=training, mask=mask)
        _note(self)
        return _normalized(self, inputs, mask)

    return call


def layers_among(operations: Iterable[Any]) -> list[str]:
    """The names of the layers that normalize by own rows.

    Args:
        operations: Of a traced step, with those of its loops and branches.
    """
    graphs = dict.fromkeys(op.graph for op in operations if implemented_by(op) == NAME)
    layers: dict[int, str] = {}
    for graph in graphs:
        layers |= getattr(graph, _LAYERS, {})
    return list(layers.values())


def say(layers: Sequence[str], world: World) -> None:
    """The chief says what differs from one worker, if anything does.

    Args:
        layers: The names of those that normalize by own rows.
        world: Whose chief speaks.
    """
    if layers and world.is_chief:
        names = ", ".join([*layers[:_MOST_NAMES], *(["..."] if len(layers) > _MOST_NAMES else [])])
        _LOGGER.info(
            "--batch-statistics local: each worker normalizes by its own rows in %d layer%s (%s), so the numbers are "
            "not those of one worker, and depend on the number of workers [batch-statistics]",
            len(layers),
            "" if len(layers) == 1 else "s",
            names,
        )


def _can_be_divided(layer: Any, inputs: Any, mask: Any) -> bool:
    """Whether a layer is one that normalizes over rows by itself, and is given what Keras would take."""
    if layer.synchronized or getattr(layer, "renorm", False) or layer.axis % len(inputs.shape) == 0:
        return False
    return mask is None or len(mask.shape) == len(inputs.shape) - 1


def _is_wanted() -> bool:
    """Whether a micro-batch is traced, or what may be divided in a job with `--batch-statistics local`."""
    if _of_micro_batch.value:
        return True
    if tf.executing_eagerly() or current_world().batch_statistics != "local":
        return False
    return is_as_one_worker() or own_loops.run_alike()


_of_micro_batch = PerThread(False)
"""Whether this thread traces for micro-batches."""


def by_own_rows() -> AbstractContextManager[None]:
    """While this lasts, what is traced normalizes by own rows, whatever the option: a micro-batch has no others."""
    return _of_micro_batch.replaced(True)


def _note(layer: Any) -> None:
    """The graph that is being built has this layer."""
    graph = get_default_graph()
    if not hasattr(graph, _LAYERS):
        setattr(graph, _LAYERS, {})
    getattr(graph, _LAYERS)[id(layer)] = layer.name


def _normalized(layer: Any, inputs: Any, mask: Any) -> Any:
    """What a layer makes of its inputs in training; moves its statistics.

    Args:
        layer: A built BatchNormalization.
        inputs: Of shape [rows, ..., channels, ...], with the channels along the layer's axis.
        mask: Of shape [rows, ...], one dimension less than the inputs, or None.
    """
    x = keras.ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
    axis = layer.axis % len(x.shape)
    mean, variance, mean_of_all, variance_of_all = _moments(x, axis, mask)
    for moving, now in ((layer.moving_mean, mean_of_all), (layer.moving_variance, variance_of_all)):
        moving.assign(keras.ops.cast(moving, x.dtype) * layer.momentum + now * (1.0 - layer.momentum))
    along_axis = [-1 if place == axis else 1 for place in range(len(x.shape))]
    beta, gamma = (
        tf.reshape(keras.ops.cast(weight, x.dtype), along_axis) if used else None
        for used, weight in ((layer.center, layer.beta), (layer.scale, layer.gamma))
    )
    outputs = tf.nn.batch_normalization(x, mean, variance, beta, gamma, layer.epsilon)
    return keras.ops.cast(outputs, layer.compute_dtype)


def _moments(x: Any, axis: int, mask: Any) -> tuple[Any, Any, Any, Any]:
    """Mean and variance of own rows, and the averages of these over all rows.

    Args:
        x: Of shape [rows, ..., channels, ...].
        axis: Of the channels.
        mask: As a layer is given it, or None.

    Returns:
        For each row, of shape [rows, 1, ..., channels, ...], mean and variance of the rows of its worker; the averages,
        of shape [channels].
    """
    places = [place for place in range(len(x.shape)) if place not in (0, axis)]
    # What is summed over own rows, and what these sums are divided by, is all made of `x`: so the partitioner has the
    # same rows of all of it.
    if mask is None:
        means = tf.reduce_mean(x, places, keepdims=True)
        num_rows = sum_over_own_rows(tf.raw_ops.OnesLike(x=means))
        mean = sum_over_own_rows(means) / num_rows
        difference = tf.math.squared_difference(x, tf.stop_gradient(mean))
        variance = sum_over_own_rows(tf.reduce_mean(difference, places, keepdims=True)) / num_rows
        return mean, variance, *(tf.reduce_mean(one, [0, *places]) for one in (mean, variance))

    taken = tf.cast(tf.broadcast_to(mask[..., tf.newaxis], tf.shape(x)), tf.bool)
    weight = tf.reduce_sum(tf.where(taken, tf.raw_ops.OnesLike(x=x), 0), places, keepdims=True)

    def weighed(values: Any) -> Any:
        total = sum_over_own_rows(tf.reduce_sum(tf.where(taken, values, 0), places, keepdims=True))
        return total / (sum_over_own_rows(weight) + keras.backend.epsilon())

    def of_all(values: Any) -> Any:
        return tf.math.divide_no_nan(tf.reduce_sum(values * weight, [0, *places]), tf.reduce_sum(weight, [0, *places]))

    mean = weighed(x)
    variance = weighed(tf.square(x - mean))
    return mean, variance, of_all(mean), of_all(variance)
