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

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.errors import ConfigurationError
from paceline.fit.metrics import read_as_they_are
from paceline.fit.pipelining.chunk_functions import ChunkFunctions
from paceline.fit.pipelining.direct_calls import DirectFunction, traced
from paceline.fit.pipelining.pipelined_model import PipelinedModel, pipelined
from paceline.fit.pipelining.replica_sums import ReplicaSums
from paceline.fit.pipelining.stage_updates import asks_other_stages, of_all_stages, one_weight_after_the_other
from paceline.fit.pipelining.stage_walk import Batch, ChunkSums
from paceline.strategy.bridged_collectives import graph_collectives_of


class PipelinedFunction:
    """Keras's train or test function.

    Args:
        model: Compiled.
        training: Whether it trains.
    """

    def __init__(self, model: Any, *, training: bool) -> None:
        self._model, self._training = model, training
        self._finish: Any = None
        self._tracked: Any = None

    def __call__(self, iterator: Any) -> dict[str, Any]:
        """Takes the steps of an execution, or as many as there is data for. Collective over the stages.

        Raises:
            StopIteration: there is none.
        """
        logs: dict[str, Any] = {}
        for step in range(self._model.steps_per_execution):
            try:
                data = next(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                if step == 0:
                    raise
                break
            logs = self._step(data)
        return logs

    def _step(self, data: Any) -> dict[str, Any]:
        pipeline = pipelined(self._model)
        leaves, specs = flat_data(data)
        functions = pipeline.functions(specs, training=self._training)
        sums, batch = pipeline.walk(functions, leaves, with_backward=self._training)
        if self._finish is None:
            self._finish = _finish_function(self._model, pipeline, functions, training=self._training)
        own = self._finish.packed(self._finish(*_left(sums, functions)))
        return self._logs(pipeline, own, sums, batch)

    def _logs(
        self, pipeline: PipelinedModel, own: dict[str, Any], sums: dict[int, ChunkSums], batch: Batch
    ) -> dict[str, Any]:
        """The results of metrics, which the last stage knows, with the loss, of which each stage knows its share."""
        tracker = self._model._loss_tracker
        loss = sum(float(share) for one in sums.values() for share in one.losses)
        flat = [np.asarray(leaf) for leaf in tf.nest.flatten(own)]
        numbers = np.concatenate([[loss], *[leaf.reshape(-1).astype(np.float64) for leaf in flat]])
        if not pipeline.has_outputs or self._model.distribute_strategy.replica != 0:
            numbers[1:] = 0.0  # the others' replicas have the same
        flags = self._model.distribute_strategy.world.flags
        total, raised, *results = pipeline.summed([numbers[0], flags.own, *numbers[1:]])
        flags.receive(int(raised))
        at, leaves = 0, []
        for leaf in flat:
            leaves.append(np.array(results[at : at + leaf.size]).reshape(leaf.shape).astype(leaf.dtype)[()])
            at += leaf.size
        logs: dict[str, Any] = tf.nest.pack_sequence_as(own, leaves)
        if tracker is not None:
            if self._tracked is None:
                self._tracked = _tracking_function(tracker)
            [logs[tracker.name]] = self._tracked(tf.constant(total, tracker.dtype), tf.constant(batch.num_rows))
        return logs


class PipelinedPrediction:
    """Keras's predict function: the model's outputs for all rows, in order, on every rank.

    Args:
        model: Built.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

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
        functions = pipeline.functions(specs, training=False, losses=False)
        sums, _ = pipeline.walk(functions, leaves, with_backward=False)
        made = []
        if pipeline.has_outputs:
            by_micro_batch = sums[max(sums)].predictions
            made = [tf.concat(parts, 0) for parts in zip(*by_micro_batch, strict=True)]
        return pipeline.packed([tf.constant(array) for array in pipeline.shown(made)])


def flat_data(data: Any) -> tuple[list[Any], Any]:
    """The leaves of a batch as tensors, and the structure of their specs."""
    given = keras.utils.unpack_x_y_sample_weight(data)
    while given[-1] is None:
        given = given[:-1]
    data = tf.nest.map_structure(tf.convert_to_tensor, given)
    specs = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), data)
    return tf.nest.flatten(data), specs


def _left(sums: dict[int, ChunkSums], functions: dict[int, ChunkFunctions]) -> list[Any]:
    """What micro-batches have left, of all chunks, besides sums of gradients: states, then slices of gradients."""
    states = [state for number in functions for state in sums[number].states]
    slices = [one for number, function in functions.items() for one in _slices(sums[number], function.trace.alike)]
    return [*states, *slices]


def _slices(sums: ChunkSums, alike: list[bool]) -> Iterator[Any]:
    """(values, indices) of what is looked up, flat: one micro-batch after the other; if all look alike, the sum."""
    for values, indices, are_alike in zip(sums.slices[::2], sums.slices[1::2], alike, strict=True):
        yield tf.add_n(values) if are_alike else tf.concat(values, 0)
        yield indices[0] if are_alike else tf.concat(indices, 0)


def _tracking_function(tracker: Any) -> DirectFunction:
    """From the loss of a batch and its rows to the mean loss so far."""

    def track(total: Any, rows: Any) -> Any:
        tracker.update_state(total, sample_weight=rows)
        return tracker.result()

    return traced(lambda given: track(*given), [tf.TensorSpec([], tracker.dtype), tf.TensorSpec([], tf.int32)])


def _finish_function(
    model: Any, pipeline: PipelinedModel, functions: dict[int, ChunkFunctions], *, training: bool
) -> DirectFunction:
    """A function that assigns the states, updates the weights, and returns the results of the metrics."""
    traces = [one.trace for one in functions.values()]
    assigned = [variable for one in traces for variable in one.assigned]
    summed = [variable for one in traces for variable in one.summed]
    looked_up = [variable for one in traces for variable in one.looked_up]
    tracker = model._loss_tracker
    strategy = model.distribute_strategy
    over_replicas = graph_collectives_of(strategy.world, strategy.stage_group)
    replicas = ReplicaSums(over_replicas, strategy.replica, strategy.replicas)

    def update(gradients: list[Any], slices: list[Any]) -> None:
        found = {id(variable): gradient for variable, gradient in zip(summed, gradients, strict=True)}
        for variable, values, indices in zip(looked_up, slices[::2], slices[1::2], strict=True):
            found[id(variable)] = tf.IndexedSlices(values, indices, tf.constant(list(variable.shape), tf.int64))
        if found:
            with one_weight_after_the_other(model.optimizer):
                model.optimizer.apply([found.get(id(one)) for one in pipeline.trained], pipeline.trained)
        else:
            _refuse_if_asked(model, pipeline)
            model.optimizer._iterations.assign_add(1)  # `iterations` may be computed: of accumulated gradients

    def finish(states: list[Any], slices: list[Any]) -> Any:
        gradients = pipeline.gradient_sums.read(summed)
        states, gradients, slices = replicas.combined(traces, states, gradients, slices)
        for variable, state in zip(assigned, states, strict=True):
            variable.assign(state)
        if training:
            with of_all_stages(graph_collectives_of(strategy.world, strategy.pipeline)):
                strategy.extended.call_for_each_replica(update, args=(gradients, slices))
            pipeline.gradient_sums.release(summed)
        with read_as_they_are():
            results = model.get_metrics_result()
        if tracker is not None:
            results.pop(tracker.name, None)
        return results

    states = [tf.TensorSpec(one.shape, one._value.dtype) for one in assigned]
    parts = [part for one in traces for pair in one.slices for part in pair]
    return traced(finish, states, [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in parts])


def _refuse_if_asked(model: Any, pipeline: PipelinedModel) -> None:
    if asks_other_stages(model.optimizer):
        names = ", ".join(layer.name for number in pipeline.own for layer in pipeline.chunks.chunks[number].layers)
        raise ConfigurationError(
            f"The stage with {names} has no weights to train, but the optimizer decides over the gradients of all "
            "stages (global_clipnorm, or a loss scale): give this stage a layer that is trained. [pipeline]"
        )
