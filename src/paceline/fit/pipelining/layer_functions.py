"""One layer of a model as the three functions that a pipeline computes: F forward, B gradients of inputs, W of weights.

The layer is traced once with its gradients, as a pure function: weights, and what layers assign (moving averages, the
states of seeds), go in and come out. The graph is cut by reachability: F is what outputs need; B what the gradients of
inputs need besides; W the rest. What crosses a cut is what a pipeline holds in between.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from paceline.fit.pipelining import compat
from paceline.fit.pipelining.model_layers import ModelLayer

_SAME_MEMORY = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient"})
"""Operations whose output is the memory of their first input."""
_AT_HAND = frozenset({"Placeholder", "Const"})
"""Operations whose output every function has by itself: what the layer is given, and what does not change."""


@dataclass(frozen=True, eq=False)
class Part:
    """One of the functions.

    Args:
        function: Takes the values of `feeds`, in order; returns those of `fetches`.
        feeds: Tensors of the layer's graph.
        fetches: Likewise.
    """

    function: Callable[..., list[Any]]
    feeds: list[Any]
    fetches: list[Any]

    def __call__(self, values: dict[int, Any]) -> None:
        """Computes; `values` has, by identity of a tensor of the graph, what is known, and gets what is fetched."""
        made = self.function(*[values[id(tensor)] for tensor in self.feeds])
        values.update(zip(map(id, self.fetches), made, strict=True))


class LayerFunctions:
    """F, B and W of one layer.

    Args:
        layer: Which one; its variables need no values.
        inputs: `tf.TensorSpec`s of what it reads, without unknown sizes.
        wanted: For each input, whether a pipeline needs its gradient.
    """

    def __init__(self, layer: ModelLayer, inputs: Sequence[Any], wanted: Sequence[bool]) -> None:
        self._layer = layer
        trained = layer.operation.trainable_variables if layer.variables else []
        self.weights = list({id(one): one for one in trained}.values())
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
            read, values, upstream, before = _split(flat, [len(group) for group in groups])
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
        self.read, self.variables, self.given, self.sums = _split(wrapped.inputs, [len(group) for group in groups])
        """Tensors of the graph that are fed: inputs, weights and states, gradients of outputs, sums so far."""
        self.made = outputs
        """Tensors of the graph: the outputs."""
        in_forward = _behind([*outputs, *states])
        in_inputs = _behind(of_inputs) - in_forward
        in_weights = _behind(of_weights) - in_forward - in_inputs
        to_inputs, to_weights = _crossing(in_forward, in_inputs), _crossing(in_forward, in_weights)
        between = _crossing(in_inputs, in_weights)
        self.stash = _each_once([*to_inputs, *to_weights])
        """Tensors of the graph that F hands to B and W, besides what F is given."""
        self.rest = _each_once([*_crossing(in_forward, in_weights), *between])
        """Those that are held from B to W, besides what F is given."""
        fed = list(wrapped.inputs)
        self.backward_reads = _read_by(in_inputs | in_weights, fed)
        """What of the fed tensors B or W read."""
        self.weights_reads = _read_by(in_weights, fed)
        """What of them W reads."""

        def part(operations: set[Any], crossed: list[Any], fetches: list[Any]) -> Part | None:
            if not fetches:
                return None
            inner = {id(tensor) for operation in operations for tensor in operation.inputs} | {*map(id, fetches)}
            feeds = _each_once([*crossed, *(tensor for tensor in fed if id(tensor) in inner)])
            pruned = wrapped.prune(feeds, fetches)
            # A pruned function's own `__call__` takes 25 ms: it formats all arguments for an error first.
            specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in feeds]
            function = tf.function(lambda *values: pruned(*values), autograph=False)
            return Part(function.get_concrete_function(*specs), feeds, fetches)

        self.forward = part(in_forward, [], _each_once([*outputs, *self.stash, *states]))
        self.inputs_gradients = part(in_inputs, to_inputs, _each_once([*of_inputs, *between]) if of_inputs else [])
        self.weights_gradients = part(in_weights, _each_once([*to_weights, *between]), of_weights)


def memory_of(tensor: Any) -> Any:
    """The tensor of the same graph whose memory `tensor` is; itself, if it has its own."""
    while tensor.op.type in _SAME_MEMORY:
        tensor = tensor.op.inputs[0]
    return tensor


def _behind(tensors: Iterable[Any]) -> set[Any]:
    """The operations that compute `tensors`."""
    found: set[Any] = set()
    left = [tensor.op for tensor in tensors]
    while left:
        if (operation := left.pop()) not in found:
            found.add(operation)
            left += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    return found


def _crossing(sources: set[Any], targets: set[Any]) -> list[Any]:
    """What `targets` read of `sources`: of each operation all outputs, or TensorFlow cannot begin a function there."""
    read = {
        tensor.op: None
        for operation in targets
        for tensor in operation.inputs
        if tensor.op in sources and tensor.op.type not in _AT_HAND
    }
    return [output for operation in sorted(read, key=lambda one: str(one.name)) for output in operation.outputs]


def _read_by(operations: set[Any], tensors: list[Any]) -> list[Any]:
    read = {id(tensor) for operation in operations for tensor in operation.inputs}
    return [tensor for tensor in tensors if id(tensor) in read]


def _each_once(tensors: Iterable[Any]) -> list[Any]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def _split(values: Sequence[Any], lengths: Sequence[int]) -> list[list[Any]]:
    parts, begin = [], 0
    for length in lengths:
        parts.append(list(values[begin : begin + length]))
        begin += length
    return parts
