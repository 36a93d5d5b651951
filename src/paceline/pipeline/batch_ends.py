"""What a stage does when it is done with a batch: states, gradients, update, and what there is to tell.

synchronous      F F B B   states and gradients over the replicas, update          one function
asynchronous     F F       states: the next batch begins with them      ─┐
                 B B       gradients, update: other batches are under way┴─        two functions
evaluated        F F       states: the metrics', and what layers assign
predicted        F F       what layers assign
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.fit.metrics import read_as_they_are
from paceline.pipeline.chunk_trace import ChunkTrace, specs_of
from paceline.pipeline.common_failures import raised_on_all
from paceline.pipeline.direct_calls import DirectFunction, traced
from paceline.pipeline.pipelined_model import PipelinedModel
from paceline.pipeline.replica_sums import ReplicaSums
from paceline.pipeline.stage_updates import of_all_stages, one_weight_after_the_other
from paceline.pipeline.walked_batches import Batch, WalkedBatch
from paceline.strategy.bridged_collectives import graph_collectives_of


class TrainedBatches:
    """Ends batches that are trained or evaluated, and knows what they have left.

    Args:
        model: Compiled.
        pipeline: Its.
        training: Whether it is trained.
    """

    def __init__(self, model: Any, pipeline: PipelinedModel, *, training: bool) -> None:
        self._model, self._pipeline, self._training = model, pipeline, training
        self._assigns_early = not training or not pipeline.schedule.is_synchronous
        self._functions: dict[bool, DirectFunction] = {}
        self._losses: list[tuple[list[Any], int]] = []
        self._results: Any = None

    def prepare(self, batch: Batch) -> None:
        """Makes the functions with which batches end, when the first one comes. Collective over all ranks then.

        Raises:
            RuntimeError: making them has failed on another rank; there the exception itself is raised.
        """
        if self._functions:
            return
        traces, made = [one.trace for one in batch.functions.values()], {}
        with raised_on_all(self._model.distribute_strategy.fit_group):
            if self._assigns_early:
                made[False] = _finish_function(self._model, self._pipeline, traces, assigns=True, updates=False)
            if self._training:
                made[True] = _finish_function(
                    self._model, self._pipeline, traces, assigns=not self._assigns_early, updates=True
                )
        self._functions = made

    def take(self) -> tuple[list[tuple[float, int]], Any]:
        """Of each batch since the last call this stage's share of the loss, and the rows; the metrics' results."""
        losses, self._losses = self._losses, []
        return [(sum(map(float, shares)), num_rows) for shares, num_rows in losses], self._results

    def end_forward(self, batch: WalkedBatch) -> None:
        """See `BatchEnds`."""
        self._losses.append(([loss for one in batch.sums.values() for loss in one.losses], batch.batch.num_rows))
        if self._assigns_early:
            self._finish(batch, assigns=True, updates=False)

    def end_backward(self, batch: WalkedBatch) -> None:
        """See `BatchEnds`."""
        self._finish(batch, assigns=not self._assigns_early, updates=True)

    def _finish(self, batch: WalkedBatch, *, assigns: bool, updates: bool) -> None:
        functions = batch.batch.functions
        states = [state for number in functions for state in batch.states(number)] if assigns else []
        slices, summed = self._gradients(batch) if updates else ([], [])
        finish = self._functions[updates]
        results = finish(*states, *slices, *summed)
        if assigns:
            self._results = finish.packed(results)

    def _gradients(self, batch: WalkedBatch) -> tuple[list[Any], list[Any]]:
        """Of what is looked up (values, indices), flat; the sums of what several chunks have."""
        shared = self._pipeline.shared_weights
        slices: list[tuple[Any, Any, Any]] = []
        for number, functions in batch.batch.functions.items():
            flat = list(batch.slices(number))
            slices += zip(functions.trace.looked_up, flat[::2], flat[1::2], strict=True)
        own = [part for variable, *pair in slices if variable not in shared for part in pair]
        return own, shared.summed(batch, slices, self._pipeline.gradient_sums)


class PredictedBatches:
    """Ends batches that are predicted: keeps what layers assign, and hands out the model's outputs.

    Args:
        model: Built, maybe not compiled.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._assign: DirectFunction | None = None
        self._is_prepared = False
        self._outputs: list[list[Any]] = []

    def prepare(self, batch: Batch) -> None:
        """See `TrainedBatches`."""
        if self._is_prepared:
            return
        traces = [one.trace for one in batch.functions.values()]
        assigned = [variable for one in traces for variable in one.assigned]
        with raised_on_all(self._model.distribute_strategy.fit_group):
            if assigned:
                self._assign = _assign_function(self._model, traces, assigned)
        self._is_prepared = True

    def take(self) -> list[list[Any]]:
        """By micro-batch of the last batch, the model's outputs; none on stages that do not have them."""
        return self._outputs

    def end_forward(self, batch: WalkedBatch) -> None:
        """See `BatchEnds`."""
        self._outputs = next(reversed(batch.sums.values())).predictions
        if self._assign is not None:
            self._assign(*(state for number in batch.batch.functions for state in batch.states(number)))

    def end_backward(self, batch: WalkedBatch) -> None:
        """Never."""


def _assign_function(model: Any, traces: Sequence[ChunkTrace], assigned: Sequence[Any]) -> DirectFunction:
    """A function that assigns the states of a batch."""
    replicas = _replica_sums(model.distribute_strategy)

    def assign(states: list[Any]) -> list[Any]:
        states, _, _ = replicas.combined(traces, states, [], [], [])
        for variable, state in zip(assigned, states, strict=True):
            variable.assign(state)
        return []

    return traced(assign, specs_of(assigned))


def _replica_sums(strategy: Any) -> ReplicaSums:
    over_replicas = graph_collectives_of(strategy.world, strategy.stage_group)
    return ReplicaSums(over_replicas, strategy.replica, strategy.replicas)


def _finish_function(
    model: Any, pipeline: PipelinedModel, traces: Sequence[ChunkTrace], *, assigns: bool, updates: bool
) -> DirectFunction:
    """A function that assigns the states, updates the weights, and returns the results of the metrics."""
    updating = traces if updates else []
    assigned = [variable for one in traces for variable in one.assigned] if assigns else []
    shared = pipeline.shared_weights
    every = [variable for one in updating for variable in one.summed]
    summed = [variable for variable in every if variable not in shared]
    rows = [
        (variable, are_alike, pair)
        for one in updating
        for variable, are_alike, pair in zip(one.looked_up, one.alike, one.slices, strict=True)
        if variable not in shared
    ]
    looked_up = [variable for variable, _, _ in rows]
    alike = [are_alike for _, are_alike, _ in rows]
    tracker = model._loss_tracker
    strategy = model.distribute_strategy
    replicas = _replica_sums(strategy)

    def update(gradients: list[Any], slices: list[Any], of_several: list[Any]) -> None:
        found = shared.gradients(of_several) | {
            id(variable): gradient for variable, gradient in zip(summed, gradients, strict=True)
        }
        for variable, values, indices in zip(looked_up, slices[::2], slices[1::2], strict=True):
            found[id(variable)] = tf.IndexedSlices(values, indices, tf.constant(list(variable.shape), tf.int64))
        if found:
            counted = [shared.is_counted(one) for one in pipeline.trained if id(one) in found]
            stages = graph_collectives_of(strategy.world, strategy.pipeline)
            optimizer = model.optimizer
            with of_all_stages(optimizer, stages, counted), one_weight_after_the_other(optimizer):
                optimizer.apply([found.get(id(one)) for one in pipeline.trained], pipeline.trained)
        else:
            model.optimizer._iterations.assign_add(1)  # `iterations` may be computed: of accumulated gradients

    def finish(states: list[Any], slices: list[Any], of_several: list[Any]) -> Any:
        gradients = pipeline.gradient_sums.read(summed)
        states, gradients, slices = replicas.combined(traces, states, gradients, slices, alike)
        for variable, state in zip(assigned, states, strict=True):
            variable.assign(state)
        if updates:
            strategy.extended.call_for_each_replica(update, args=(gradients, slices, of_several))
            pipeline.gradient_sums.release(every)
        with read_as_they_are():
            results = model.get_metrics_result() if assigns else {}
        if tracker is not None:
            results.pop(tracker.name, None)
        return results

    parts = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for _, _, pair in rows for part in pair]
    return traced(finish, specs_of(assigned), parts, shared.specs if updates else [])
