"""One layer of a model as the three functions that a pipeline computes: F forward, B gradients of inputs, W of weights.

The layer is traced once with its gradients, as a pure function: weights, and what layers assign (moving averages, the
states of seeds), go in and come out. The graph is cut by reachability: F is what outputs need; B what the gradients of
inputs need besides; W the rest. What crosses a cut is what a pipeline holds in between.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.pipeline import compat
from paceline.pipeline.cut_graphs import CutGraph, GraphFunction, behind, each_once, parted
from paceline.pipeline.model_layers import ModelLayer

_SAME_MEMORY = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient"})
"""Operations whose output is the memory of their first input."""


class LayerFunctions:
    """F, B and W of one layer.

    Args:
        layer: Which one; its variables need no values.
        inputs: `tf.TensorSpec`s of what it reads, without unknown sizes.
        wanted: For each input, whether a pipeline needs its gradient.
    """

    def __init__(self, layer: ModelLayer, inputs: Sequence[Any], wanted: Sequence[bool]) -> None:
        self._layer = layer
        self.weights = [one for one in layer.variables if one.trainable]
        """Keras variables with gradients."""
        self.states = [one for one in layer.variables if not any(one is weight for weight in self.weights)]
        """The others."""
        self._differentiated = [at for at, spec in enumerate(inputs) if wanted[at] and spec.dtype.is_floating]
        of_variables = [tf.TensorSpec(one.shape, one.dtype) for one in (*self.weights, *self.states)]
        outputs = tf.function(self._forward, autograph=False).get_concrete_function(list(inputs), of_variables)
        self.outputs = [tf.TensorSpec(one.shape, one.dtype) for one in outputs.structured_outputs[0]]
        """Of what the layer makes."""
        self._cut(list(inputs), of_variables)

    def _forward(self, inputs: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
        """The outputs, and the new states."""
        variables = [*self.weights, *self.states]
        with keras.StatelessScope(list(zip(variables, values, strict=True)), initialize_variables=False) as scope:
            tensors = dict(zip(map(id, self._layer.inputs), inputs, strict=True))
            for read, tensor in zip(self._layer.inputs, inputs, strict=True):
                if (mask := compat.get_keras_mask(read)) is not None:  # of a real batch; here no row is masked
                    sizes = [fixed or size for fixed, size in zip(mask.shape, tensor.shape, strict=False)]
                    compat.set_keras_mask(tensor, tf.ones(sizes, tf.bool))
            compat.repeated(self._layer.call, tensors, training=True)
            made = [tf.convert_to_tensor(tensors[id(tensor)]) for tensor in self._layer.outputs]
            return made, [tf.convert_to_tensor(scope.get_current_value(one)) for one in self.states]

    def _cut(self, inputs: list[Any], of_variables: list[Any]) -> None:
        floating = [at for at, spec in enumerate(self.outputs) if spec.dtype.is_floating]
        given = [self.outputs[at] for at in floating]
        sums = of_variables[: len(self.weights)]
        groups = [inputs, of_variables, given, sums]
        made: list[list[Any]] = []

        def whole(*flat: Any) -> None:
            read, values, upstream, before, _ = parted(flat, [len(group) for group in groups])
            sources = [*(read[at] for at in self._differentiated), *values[: len(self.weights)]]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                outputs, states = self._forward(read, values)
            targets = [outputs[at] for at in floating]
            gradients = tape.gradient(targets, sources, upstream, tf.UnconnectedGradients.ZERO) if targets else []
            dense = [tf.convert_to_tensor(one) for one in gradients]
            of_inputs, of_weights = dense[: len(self._differentiated)], dense[len(self._differentiated) :]
            made.extend(([*outputs], [*states], of_inputs, [a + b for a, b in zip(before, of_weights, strict=False)]))

        wrapped = tf.compat.v1.wrap_function(whole, [spec for group in groups for spec in group])
        outputs, states, of_inputs, of_weights = made
        lengths = [len(group) for group in groups]
        self.read, self.variables, self.given, self.sums, _ = parted(wrapped.inputs, lengths)
        """Tensors of the graph that are fed: inputs, weights and states, gradients of outputs, sums so far."""
        self.made = outputs
        """Tensors of the graph: the outputs."""
        in_forward = behind([*outputs, *states])
        in_inputs = behind(of_inputs) - in_forward
        in_weights = behind(of_weights) - in_forward - in_inputs
        graph = CutGraph(wrapped, wrapped.inputs, lasting=self.variables[: len(self.weights)])
        to_inputs, to_weights = graph.crossing(in_forward, in_inputs), graph.crossing(in_forward, in_weights)
        between = graph.crossing(in_inputs, in_weights)
        self.stash = each_once([*to_inputs, *to_weights])
        """Tensors of the graph that F hands to B and W, besides what F is given."""
        self.rest = each_once([*to_weights, *between])
        """Those that are held from B to W, besides what F is given."""

        def function(crossed: list[Any], fetches: list[Any]) -> GraphFunction | None:
            return graph.function(crossed, each_once(fetches)) if fetches else None

        self.forward = function([], [*outputs, *self.stash, *states])
        self.inputs_gradients = function(to_inputs, [*of_inputs, *between] if of_inputs else [])
        self.weights_gradients = function(self.rest, of_weights)


def memory_of(tensor: Any) -> Any:
    """The tensor of the same graph whose memory `tensor` is; itself, if it has its own."""
    while tensor.op.type in _SAME_MEMORY:
        tensor = tensor.op.inputs[0]
    return tensor
