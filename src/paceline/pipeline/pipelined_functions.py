"""What Keras's loops call in a pipeline: the functions of a step that trains, evaluates or predicts.

next(iterator): the global batch, whole on every rank
     │  stage_walk.py: micro-batches through the chunks of this stage
     ▼
one sum over the replicas of this stage (replica_sums.py) ─► update of its weights
     ▼
one sum over all ranks: shares of the loss, and the last stage's metrics
     ▼
the same logs on every rank
"""

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.pipeline.batch_ends import PredictedBatches, TrainedBatches
from paceline.pipeline.direct_calls import DirectFunction, traced
from paceline.pipeline.pipelined_model import PipelinedModel, pipelined
from paceline.pipeline.walked_batches import Batch

_LOGGER = logging.getLogger("paceline")


class PipelinedFunction:
    """Keras's train or test function.

    Args:
        model: Compiled.
        training: Whether it trains.
    """

    def __init__(self, model: Any, *, training: bool) -> None:
        self._model, self._training = model, training
        self._ended: TrainedBatches | None = None
        self._tracked: DirectFunction | None = None

    def __call__(self, iterator: Any) -> dict[str, Any]:
        """Takes the steps of an execution, or as many as there is data for. Collective over the stages.

        Raises:
            StopIteration: there is none.
        """
        steps = self._model.steps_per_execution
        pipeline = pipelined(self._model)
        together = steps if self._training and not pipeline.schedule.is_synchronous else 1
        data, logs = _until_the_end(iterator), None
        for _ in range(0, steps, together):
            if (first := next(data, None)) is None:
                break
            logs = self._steps(pipeline, itertools.chain([first], itertools.islice(data, together - 1)), together)
        if logs is None:
            raise StopIteration
        return logs

    def _steps(self, pipeline: PipelinedModel, data: Iterator[Any], number: int) -> dict[str, Any]:
        """Takes up to `number` batches through one plan."""
        if self._ended is None:
            self._ended = TrainedBatches(self._model, pipeline, training=self._training)
            _warn_of_pauses(self._model, pipeline, training=self._training)
        ended = self._ended
        ended.take()  # what an execution has left that raised

        def batches() -> Iterator[Batch]:
            for one in data:
                batch = pipeline.batch(*flat_data(one), training=self._training)
                ended.prepare(batch)
                yield batch

        pipeline.walk(batches(), ended, num_batches=number, with_backward=self._training)
        return self._logs(pipeline, *ended.take())

    def _logs(self, pipeline: PipelinedModel, losses: list[tuple[float, int]], own: dict[str, Any]) -> dict[str, Any]:
        """The results of metrics, which the last stage knows, with the losses, of which each stage knows its shares."""
        tracker = self._model._loss_tracker
        flat = [np.asarray(leaf) for leaf in tf.nest.flatten(own)]
        results = np.concatenate([np.zeros(0), *[leaf.reshape(-1).astype(np.float64) for leaf in flat]])
        if not pipeline.has_outputs or self._model.distribute_strategy.replica != 0:
            results[:] = 0.0  # the others' replicas have the same
        flags = self._model.distribute_strategy.world.flags
        raised, *numbers = pipeline.summed([flags.own, *(loss for loss, _ in losses), *results], len(losses))
        flags.receive(int(raised))
        totals, numbers = numbers[: len(losses)], numbers[len(losses) :]
        at, leaves = 0, []
        for leaf in flat:
            leaves.append(np.array(numbers[at : at + leaf.size]).reshape(leaf.shape).astype(leaf.dtype)[()])
            at += leaf.size
        logs: dict[str, Any] = tf.nest.pack_sequence_as(own, leaves)
        if tracker is not None:
            if self._tracked is None:
                self._tracked = _tracking_function(tracker)
            for total, (_, num_rows) in zip(totals, losses, strict=True):
                [logs[tracker.name]] = self._tracked(tf.constant(total, tracker.dtype), tf.constant(num_rows))
        return logs


def _tracking_function(tracker: Any) -> DirectFunction:
    """From the loss of a batch and its rows to the mean loss so far."""

    def track(total: Any, rows: Any) -> Any:
        tracker.update_state(total, sample_weight=rows)
        return tracker.result()

    return traced(lambda given: track(*given), [tf.TensorSpec([], tracker.dtype), tf.TensorSpec([], tf.int32)])


def _warn_of_pauses(model: Any, pipeline: PipelinedModel, *, training: bool) -> None:
    strategy, schedule = model.distribute_strategy, pipeline.schedule
    waits = training and not schedule.is_synchronous and strategy.stages > 1 and model.steps_per_execution == 1
    if waits and strategy.world.is_chief:
        _LOGGER.warning(
            "stages under %r do not wait for each other between the batches of an execution, but compile() has "
            "steps_per_execution=1: they wait after each batch, and gain nothing over '1f1b'. Compile with "
            "steps_per_execution=16 or more. [pipeline]",
            schedule.name,
        )


def _until_the_end(iterator: Any) -> Iterator[Any]:
    """What is left of the data."""
    while True:
        try:
            data = next(iterator)
        except (StopIteration, tf.errors.OutOfRangeError):
            return
        yield data


class PipelinedPrediction:
    """Keras's predict function: the model's outputs for all rows, in order, on every rank.

    Args:
        model: Built.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._ended = PredictedBatches(model)

    def __call__(self, data: Any) -> Any:
        """The outputs for a list of batches. Collective over the stages."""
        outputs = [self._predicted(one) for one in data]
        if len(outputs) == 1:
            return outputs[0]
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *outputs)

    def _predicted(self, data: Any) -> Any:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        leaves, specs = flat_data((x,))
        pipeline = pipelined(self._model, int(leaves[0].shape[0]))
        batch = pipeline.batch(leaves, specs, training=False, losses=False)
        self._ended.prepare(batch)
        pipeline.walk(iter([batch]), self._ended, with_backward=False)
        made = [tf.concat(parts, 0) for parts in zip(*self._ended.take(), strict=True)]
        return pipeline.packed([tf.constant(array) for array in pipeline.shown(made)])


def flat_data(data: Any) -> tuple[list[Any], Any]:
    """The leaves of a batch as tensors, and the structure of their specs."""
    given = keras.utils.unpack_x_y_sample_weight(data)
    while given[-1] is None:
        given = given[:-1]
    data = tf.nest.map_structure(tf.convert_to_tensor, given)
    specs = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), data)
    return tf.nest.flatten(data), specs
