"""What plain Keras does in the layers of a chunk, traced for a whole batch: forward, losses, metrics, gradients.

The trace knows nothing of a pipeline but where the chunk begins and ends. `chunk_tracing.py` divides it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from paceline.errors import ConfigurationError
from paceline.fit.one_workers_step import traced_in_no_order
from paceline.pipeline import compat
from paceline.pipeline.chunk_trace import is_floating, specs_of
from paceline.pipeline.chunks import Chunk
from paceline.pipeline.layer_states import refuse_trained
from paceline.spmd.placements import P, Placement, R, Sharded
from paceline.strategy.as_one_worker import as_one_worker


@dataclass(frozen=True)
class StepInputs:
    """What a chunk's step is given: `tf.TensorSpec`s, or tensors.

    Args:
        data: The leaves of (x, y, sample_weight).
        received: Of the chunk.
        given: Gradients of what it hands on, of those that are floating, in order.
        weights: Values of the trained variables that are not read.
        states: Values of the variables that are assigned.
    """

    data: list[Any]
    received: list[Any]
    given: list[Any]
    weights: list[Any]
    states: list[Any]

    @property
    def groups(self) -> tuple[list[Any], ...]:
        """All, in the order in which the step takes them."""
        return self.data, self.received, self.given, self.weights, self.states

    @property
    def placements(self) -> list[Placement]:
        """What a micro-batch has of each tensor."""
        whole = [R for _ in (*self.weights, *self.states)]
        return [
            *(placement_of(one) for one in (*self.data, *self.received)),
            *(P if placement_of(one) == R else placement_of(one) for one in self.given),
            *whole,
        ]


def placement_of(tensor: Any) -> Placement:
    """What a micro-batch has of a tensor that passes a cut: its rows, or all of one that has none, as a position's.

    Args:
        tensor: With the static shape of all rows; or its spec.
    """
    return Sharded(0) if tuple(tensor.shape)[:1] == (None,) else R


@dataclass(frozen=True)
class ChunkStep:
    """A chunk's step of a whole batch.

    Args:
        traced: The concrete function of `inputs`; its outputs are those of `lengths`, flat.
        inputs: Its.
        lengths: How many tensors are handed on, predictions, losses, gradients of what was received, dense gradients,
            values and indices of gradients of rows, new states.
        assigned: Keras variables that are assigned.
        summed: Trained Keras variables with dense gradients.
        looked_up: Those with gradients of rows.
        versioned: Those whose values are among the inputs.
    """

    traced: Any
    inputs: StepInputs
    lengths: list[int]
    assigned: list[Any]
    summed: list[Any]
    looked_up: list[Any]
    versioned: list[Any]


def step_of(model: Any, chunk: Chunk, specs: Any, *, training: bool, losses: bool, versioned: bool) -> ChunkStep:
    """Traces it.

    Args:
        model: The whole one, compiled if `losses`.
        chunk: Of it, with values for its variables.
        specs: The element spec of the data: (x, y, sample_weight) or less.
        training: Whether layers train, and gradients are wanted.
        losses: Whether losses and metrics are wanted: not to predict.
        versioned: Whether weights are given, instead of read.

    Raises:
        ConfigurationError: the chunk does what a pipeline cannot do.
    """
    assigned = [variable for variable in chunk.variables if not variable.trainable] if training else []
    if chunk.outputs and losses:
        assigned += [one for metric in model.metrics if metric is not model._loss_tracker for one in metric.variables]
    while True:
        tracing = _Tracing(model, chunk, specs, assigned, training=training, losses=losses, versioned=versioned)
        made = tracing.step()
        if not tracing.found:
            return made
        assigned = [*assigned, *tracing.found]


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

    handed_on: list[Any] = field(default_factory=list)
    predictions: list[Any] = field(default_factory=list)
    loss: Any = None


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
        self._training, self._losses = training, losses
        own = {id(variable) for variable in chunk.variables}
        self._trained = [one for one in model.trainable_variables if id(one) in own] if training else []
        self._versioned = self._trained if versioned else []
        self._summed: list[Any] = []
        self._looked_up: list[Any] = []
        self._lengths: list[int] = []
        self.found: list[Any] = []

    def step(self) -> ChunkStep:
        chunk = self._chunk
        inputs = StepInputs(
            data=[_any_rows(spec) for spec in tf.nest.flatten(self._specs)],
            received=[tf.TensorSpec(one.shape, one.dtype) for one in chunk.received],
            given=[tf.TensorSpec(one.shape, one.dtype) for one in chunk.handed_on if is_floating(one)] * self._training,
            weights=specs_of(self._versioned),
            states=specs_of(self._assigned),
        )
        with as_one_worker():
            traced = traced_in_no_order(lambda groups: self._computed(StepInputs(*groups)), inputs.groups)
        return ChunkStep(
            traced, inputs, self._lengths, self._assigned, self._summed, self._looked_up, list(self._versioned)
        )

    def _computed(self, inputs: StepInputs) -> list[Any]:
        differentiable = [tensor for tensor in inputs.received if tensor.dtype.is_floating]
        weights = inputs.weights or [variable._value for variable in self._trained]
        given_values = [
            *zip(self._assigned, inputs.states, strict=True),
            *zip(self._versioned, inputs.weights, strict=True),
        ]
        with tf.GradientTape(persistent=False, watch_accessed_variables=False) as tape:
            tape.watch([*differentiable, *weights])
            scope = _NotingScope(state_mapping=given_values, collect_losses=True)
            with scope:
                forward = self._forward(scope, inputs.data, inputs.received)
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
            upstream = list(inputs.given)
            if scaled is not None:
                targets, upstream = [*targets, scaled], [*upstream, tf.ones_like(scaled)]
            all_gradients = tape.gradient(targets, [*differentiable, *weights], output_gradients=upstream)
            received_gradients = [
                tf.zeros_like(tensor) if gradient is None else tf.convert_to_tensor(gradient)
                for tensor, gradient in zip(differentiable, all_gradients, strict=False)
            ]
            gradients = all_gradients[len(differentiable) :]
        dense = [at for at, one in enumerate(gradients) if one is not None and not isinstance(one, tf.IndexedSlices)]
        sparse = [at for at, one in enumerate(gradients) if isinstance(one, tf.IndexedSlices)]
        self._summed = [self._trained[at] for at in dense]
        self._looked_up = [self._trained[at] for at in sparse]
        outputs = [
            forward.handed_on,
            forward.predictions,
            [] if forward.loss is None else [forward.loss],
            received_gradients,
            [gradients[at] for at in dense],
            [part for at in sparse for part in (gradients[at].values, gradients[at].indices)],
            new_states,
        ]
        self._lengths = [len(group) for group in outputs]
        return [tf.convert_to_tensor(tensor) for group in outputs for tensor in group]

    def _forward(self, scope: Any, data: list[Any], received: list[Any]) -> _Forward:
        chunk, model = self._chunk, self._model
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tf.nest.pack_sequence_as(self._specs, data))
        made = _Forward()
        tensors = dict(zip(map(id, model.inputs), compat.standardized(model, x), strict=True))
        tensors.update(zip(map(id, chunk.received), received, strict=True))
        self._compute_masks(tensors)
        for layer in chunk.layers:
            compat.repeated(layer.call, tensors, self._training)
        made.handed_on = [tensors[id(tensor)] for tensor in chunk.handed_on]
        if self._losses:
            losses = [model._aggregate_additional_loss(loss) for loss in self._own_losses(scope)]
            if chunk.outputs:
                losses = [*self._compiled_loss(tensors, y, sample_weight), *losses]
            made.loss = keras.ops.sum(losses) if losses else None
        if chunk.outputs:
            made.predictions = [tensors[id(tensor)] for tensor in chunk.outputs]
            if self._losses and model._compile_metrics is not None:
                model._compile_metrics.update_state(y, self._structured(tensors), sample_weight=sample_weight)
        return made

    def _own_losses(self, scope: Any) -> list[Any]:
        """What the chunk's layers have added, and the regularisers of its weights, of each weight once in the model."""
        chunk = self._chunk
        earlier = {id(one) for one in chunk.of_earlier}
        weights = [
            one for one in chunk.variables if one.trainable and one.regularizer is not None and id(one) not in earlier
        ]
        return [*scope.losses, *(weight.regularizer(weight) for weight in weights)]

    def _compiled_loss(self, tensors: dict[int, Any], y: Any, sample_weight: Any) -> list[Any]:
        model = self._model
        if model._compile_loss is None:
            return []
        loss = model._compile_loss(y, self._structured(tensors), sample_weight)
        return [] if loss is None else [loss]

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


def _any_rows(spec: Any) -> Any:
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (None, 0):
        raise ConfigurationError(
            "A pipeline divides batches of dense tensors, whose first axis is that of the rows, into micro-batches; "
            f"the data has {spec}. [pipeline]"
        )
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
