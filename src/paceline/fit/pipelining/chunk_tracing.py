"""Traces a chunk: layers, losses and metrics of one micro-batch, and their gradients, become a `ChunkTrace`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from paceline.errors import ConfigurationError
from paceline.fit.lineage import From, lineage_of
from paceline.fit.pipelining import compat
from paceline.fit.pipelining.chunk_trace import ChunkTrace, is_floating
from paceline.fit.pipelining.chunks import Chunk
from paceline.fit.pipelining.cut_graphs import parted
from paceline.fit.pipelining.layer_states import refuse_trained
from paceline.fit.pipelining.micro_batches import BatchSums, MicroBatchContext, MicroBatchRows
from paceline.fit.shares import share_of


class _NotingScope(keras.StatelessScope):  # type: ignore[misc]  # Keras is untyped
    """Knows which variables have been assigned in it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.updated: dict[int, Any] = {}

    def add_update(self, update: Any) -> None:
        """Keras assigns."""
        self.updated[id(update[0])] = update[0]
        super().add_update(update)


@dataclass
class _Forward:
    """What the forward of a chunk has made."""

    sums: BatchSums
    rows: MicroBatchRows
    handed_on: list[Any] = field(default_factory=list)
    predictions: list[Any] = field(default_factory=list)
    loss: Any = None
    averaged: list[Any] = field(default_factory=list)


def trace(
    model: Any, chunk: Chunk, specs: Any, *, training: bool, losses: bool = True, versioned: bool = False
) -> ChunkTrace:
    """Builds the graph.

    Args:
        model: The whole one, compiled if `losses`.
        chunk: Of it, with values for its variables.
        specs: The element spec of the data: (x, y, sample_weight) or less.
        training: Whether layers train, and gradients are wanted.
        losses: Whether losses and metrics are wanted: not to predict.
        versioned: Whether weights can be given, instead of read.

    Raises:
        ConfigurationError: the chunk does what a pipeline cannot do.
    """
    assigned = [variable for variable in chunk.variables if not variable.trainable] if training else []
    if chunk.outputs and losses:
        assigned += [one for metric in model.metrics if metric is not model._loss_tracker for one in metric.variables]
    while True:
        made = _Tracing(model, chunk, specs, assigned, training=training, losses=losses, versioned=versioned)
        graph = made.build()
        if not made.found:
            return graph
        assigned = [*assigned, *made.found]


class _Tracing:
    """One attempt: `found` has variables that are assigned besides those known; then another one is needed."""

    def __init__(
        self,
        model: Any,
        chunk: Chunk,
        specs: Any,
        assigned: Sequence[Any],
        *,
        training: bool,
        losses: bool,
        versioned: bool,
    ) -> None:
        self._model, self._chunk, self._specs, self._assigned = model, chunk, specs, list(assigned)
        self._training, self._losses, self._versioned = training, losses, versioned
        self._metrics = [variable for metric in model.metrics for variable in metric.variables]
        self.found: list[Any] = []

    def build(self) -> ChunkTrace:
        chunk, training = self._chunk, self._training
        data_specs = [_any_rows(spec) for spec in tf.nest.flatten(self._specs)]
        received = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in chunk.received]
        given = [tf.TensorSpec(one.shape, one.dtype) for one in chunk.handed_on if is_floating(one)] * training
        own = {id(variable) for variable in chunk.variables}
        trained = [one for one in self._model.trainable_variables if id(one) in own] if training else []
        groups: list[list[Any]] = [
            data_specs,
            [tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64)],
            received,
            given,
            [tf.TensorSpec([], tf.resource) for _ in trained],
            [tf.TensorSpec(one.shape, one._value.dtype) for one in self._assigned],
        ]
        result: dict[str, Any] = {}

        def whole(*flat: Any) -> list[Any]:
            *arguments, _ = parted(flat, [len(group) for group in groups])
            result.update(self._traced(trained, *arguments))
            return []

        wrapped = tf.compat.v1.wrap_function(whole, [spec for group in groups for spec in group])
        return ChunkTrace(wrapped=wrapped, is_training=training, **result)

    def _traced(
        self,
        trained: list[Any],
        data: list[Any],
        rows: list[Any],
        received: list[Any],
        given: list[Any],
        sums: list[Any],
        states: list[Any],
    ) -> dict[str, Any]:
        differentiable = [tensor for tensor in received if tensor.dtype.is_floating]
        versioned = trained if self._versioned else []
        read = [tf.convert_to_tensor(variable._value) for variable in versioned]
        weights = read or [variable._value for variable in trained]
        given_values = [*zip(self._assigned, states, strict=True), *zip(versioned, read, strict=True)]
        with tf.GradientTape(persistent=False, watch_accessed_variables=False) as tape:
            tape.watch([*differentiable, *weights])
            scope = _NotingScope(state_mapping=given_values, collect_losses=True)
            first, number = rows[1], tf.cast(rows[0], tf.int64)
            with scope:
                forward = self._forward(scope, [leaf[first : first + number] for leaf in data], rows, received)
                new_states = [
                    tf.cast(scope.get_current_value(variable), variable._value.dtype) for variable in self._assigned
                ]
            scaled = forward.loss
            if self._training and scaled is not None and self._model.optimizer is not None:
                scaled = self._model.optimizer.scale_loss(scaled)
        refuse_trained(self._chunk, scope.updated.values())
        known = {id(variable) for variable in self._assigned}
        self.found = [variable for variable in scope.updated.values() if id(variable) not in known]
        received_gradients: list[Any] = []
        gradients: list[Any] = []
        if self._training:
            targets = [tensor for tensor in forward.handed_on if tensor.dtype.is_floating]
            upstream = list(given)
            if scaled is not None:
                targets, upstream = [*targets, scaled], [*upstream, tf.ones_like(scaled)]
            all_gradients = tape.gradient(targets, [*differentiable, *weights], output_gradients=upstream)
            received_gradients = [
                tf.zeros_like(tensor) if gradient is None else tf.convert_to_tensor(gradient)
                for tensor, gradient in zip(differentiable, all_gradients, strict=False)
            ]
            gradients = all_gradients[len(differentiable) :]
        share = forward.rows.share
        new_states = [
            tf.math.multiply_no_nan(value, share(value.dtype)) if _is_in(variable, forward.averaged) else value
            for variable, value in zip(self._assigned, new_states, strict=True)
        ]
        dense = [at for at, one in enumerate(gradients) if one is not None and not isinstance(one, tf.IndexedSlices)]
        sparse = [at for at, one in enumerate(gradients) if isinstance(one, tf.IndexedSlices)]
        return {
            "data": data,
            "rows": rows,
            "received": received,
            "given": given,
            "sums": [sums[at] for at in dense],
            "weights": read,
            "states": states,
            "handed_on": forward.handed_on,
            "predictions": forward.predictions,
            "loss": forward.loss,
            "received_gradients": received_gradients,
            "added": _added([sums[at] for at in dense], [gradients[at] for at in dense]),
            "slices": [(gradients[at].values, gradients[at].indices) for at in sparse],
            "new_states": new_states,
            "part_of_total": forward.sums.parts,
            "totals": forward.sums.totals,
            "assigned": self._assigned,
            "threaded": [one for one in self._assigned if _is_in(one, self._metrics)],
            "averaged": [one for one in self._assigned if _is_in(one, forward.averaged)],
            "summed": [trained[at] for at in dense],
            "looked_up": [trained[at] for at in sparse],
            "alike": [From.DATA not in lineage_of(forward.rows).of(gradients[at].indices) for at in sparse],
            "versioned": versioned,
        }

    def _forward(self, scope: Any, data: list[Any], rows: list[Any], received: list[Any]) -> _Forward:
        chunk, model = self._chunk, self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tf.nest.pack_sequence_as(self._specs, data))
        sums = BatchSums()
        made = _Forward(sums, MicroBatchRows(rows[0], rows[1], rows[2], sums))
        context = MicroBatchContext(model.distribute_strategy, made.rows, sums)
        with context:
            tensors = dict(zip(map(id, model.inputs), compat.standardized(model, x), strict=True))
            tensors.update(zip(map(id, chunk.received), received, strict=True))
            self._compute_masks(tensors)
            for layer in chunk.layers:
                compat.repeated(layer.call, tensors, self._training)
            made.handed_on = [tensors[id(tensor)] for tensor in chunk.handed_on]
            made.averaged = context.rows.statistics.take_noted()
            if self._losses:
                losses = [model._aggregate_additional_loss(loss) for loss in self._own_losses(scope)]
                if chunk.outputs:
                    losses = [*self._compiled_loss(tensors, y, sample_weight, made.rows), *losses]
                made.loss = keras.ops.sum(losses) if losses else None
        if chunk.outputs:
            made.predictions = [tensors[id(tensor)] for tensor in chunk.outputs]
            if self._losses and model._compile_metrics is not None:
                model._compile_metrics.update_state(y, self._structured(tensors), sample_weight=sample_weight)
        return made

    def _own_losses(self, scope: Any) -> list[Any]:
        """What the chunk's layers have added, and the regularisers of its weights, of each weight once in the model."""
        chunk = self._chunk
        weights = [
            one
            for one in chunk.variables
            if one.trainable and one.regularizer is not None and not _is_in(one, chunk.of_earlier)
        ]
        return [*scope.losses, *(weight.regularizer(weight) for weight in weights)]

    def _compiled_loss(self, tensors: dict[int, Any], y: Any, sample_weight: Any, rows: MicroBatchRows) -> list[Any]:
        model = self._model
        if model._compile_loss is None:
            return []
        loss = model._compile_loss(y, self._structured(tensors), sample_weight)
        return [] if loss is None else [share_of(loss, rows)]  # a loss with its own `__call__` is a mean of its rows

    def _structured(self, tensors: dict[int, Any]) -> Any:
        outputs = [tensors[id(tensor)] for tensor in self._chunk.outputs]
        return compat.packed_outputs(self._model, outputs)

    def _compute_masks(self, tensors: dict[int, Any]) -> None:
        """Gives what has been received the masks that it had."""
        masks = dict(tensors)
        for call in self._chunk.mask_calls:
            compat.repeated(call, masks, self._training)
        made = {id(tensor) for call in self._chunk.mask_calls for tensor in call.outputs}
        # A mask that has been received as a layer's argument, too: denominators must follow from the data.
        tensors.update((id(tensor), masks[id(tensor)]) for tensor in self._chunk.received if id(tensor) in made)
        for tensor in self._chunk.received:
            mask = compat.get_keras_mask(tensor)
            if mask is not None:
                compat.set_keras_mask(tensors[id(tensor)], masks[id(mask)])


def _added(sums: list[Any], gradients: list[Any]) -> Any:
    """A tensor that is there when each of the gradients has been added to its sum; None without any."""
    if not sums:
        return None
    additions = [
        tf.raw_ops.AssignAddVariableOp(resource=total, value=gradient)
        for total, gradient in zip(sums, gradients, strict=True)
    ]
    nothing = tf.zeros([], tf.int32)
    with tf.control_dependencies(additions):
        return tf.identity(nothing)


def _is_in(variable: Any, variables: Sequence[Any]) -> bool:
    return any(variable is one for one in variables)


def _any_rows(spec: Any) -> Any:
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (None, 0):
        raise ConfigurationError(
            "A pipeline divides batches of dense tensors, whose first axis is that of the rows, into micro-batches; "
            f"the data has {spec}. [pipeline]"
        )
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
