"""What one layer costs on one micro-batch: seconds of its functions, and bytes that are held of it.

In training other layers run between two calls for one layer, so its weights and its stash are in no cache any more, but
what it is handed is. So it is here: a large array is written before each call, then what is handed is read. The time of
an empty call is subtracted: a chunk of many layers makes one call.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.pipeline.cut_graphs import GraphFunction
from paceline.pipeline.direct_calls import traced
from paceline.pipeline.layer_functions import LayerFunctions, memory_of

Clock = Callable[[], float]

MOST_REPEATS = 15
ENOUGH_SECONDS = 0.3
"""Of one layer: it is measured so often, or, from three times on, so long."""

MOST_OTHER_BYTES = 2**24
"""That are written in place of other layers' work: more than a core's own caches hold."""


@dataclass(frozen=True)
class LayerCost:
    """As `plan.profile.Layer` has them, of one layer on one micro-batch.

    Args:
        forward_seconds: F.
        inputs_seconds: B; 0 if no gradients of inputs are needed.
        weights_seconds: W, with the addition to the sums of gradients; 0 without weights.
        update_seconds: Of the optimizer.
        output_bytes: Of all outputs.
        held_bytes: From F to B and W, of what the layer makes, without its outputs.
        held_for_weights_bytes: From B to W, likewise, with gradients.
        parameter_bytes: Weights.
        slot_bytes: Of the optimizer.
        holds_outputs: 1 if its own backward reads its outputs, else 0.
        holds_inputs: 1 if its backward reads its inputs, else 0.
        holds_inputs_for_weights: 1 if W does, else 0.
        is_alias: 1 if its outputs are the memory of its inputs, as those of Flatten, else 0.
    """

    forward_seconds: float
    inputs_seconds: float
    weights_seconds: float
    update_seconds: float
    output_bytes: float
    held_bytes: float
    held_for_weights_bytes: float
    parameter_bytes: float
    slot_bytes: float
    holds_outputs: float
    holds_inputs: float
    holds_inputs_for_weights: float
    is_alias: float

    @property
    def numbers(self) -> list[float]:
        """All, in order; `LayerCost(*numbers)` is equal."""
        return list(map(float, astuple(self)))


class CallCost:
    """The seconds of a call of a function that computes nothing, by the number of tensors that go in and come out."""

    def __init__(self, clock: Clock) -> None:
        few, many = (self._measured(number, clock) for number in (2, 32))
        self._each = max(0.0, (many - few) / 60)
        self._first = max(0.0, few - 4 * self._each)

    @staticmethod
    def _measured(number: int, clock: Clock) -> float:
        specs = [tf.TensorSpec([], tf.float32)] * number
        function, values = traced(list, specs), [tf.zeros([])] * number
        return _typical(lambda: function(*values), clock, 50)

    def seconds(self, part: GraphFunction | None = None) -> float:
        """Of a call of `part`; without, of one of usual size."""
        return self._first + self._each * (len(part.feeds) + len(part.fetches) if part else 8)


def cost_of(
    functions: LayerFunctions,
    values: Sequence[Any],
    optimizer: Any,
    calls: CallCost,
    clock: Clock,
    other_bytes: int = 0,
) -> LayerCost:
    """Measures one layer.

    Args:
        functions: Its.
        values: What it reads, as `functions` has been told.
        optimizer: Keras's, whose configuration counts; None: no update.
        calls: What calls cost here.
        clock: Seconds.
        other_bytes: What other layers read and write between two calls for this one.
    """
    known = _values(functions, values)
    parts = (functions.forward, functions.inputs_gradients, functions.weights_gradients)
    handed = (functions.read, functions.given, functions.given)
    measured = [(part, tensors) for part, tensors in zip(parts, handed, strict=True) if part]
    seconds = _in_turn(measured, known, calls, clock, other_bytes)
    f, b, w = (seconds.get(id(part), 0.0) for part in parts)
    update, slots = _update(functions.weights, optimizer, calls, clock)

    inputs = {id(tensor) for tensor in functions.read}
    outputs = {id(memory_of(tensor)) for tensor in functions.made}
    stashed = {id(memory_of(tensor)): tensor for tensor in functions.stash}
    own = [tensor for key, tensor in stashed.items() if key not in inputs | outputs]
    later = {id(memory_of(tensor)): tensor for tensor in functions.rest}
    given = {id(tensor): tensor for tensor in functions.given}
    for_weights = _feeds(functions.weights_gradients)
    for_backward = {*stashed, *_feeds(functions.inputs_gradients), *for_weights}
    later.update((key, tensor) for key, tensor in for_weights.items() if key in given)

    def num_bytes(tensors: Iterable[Any]) -> float:
        return sum(_num_bytes(known[id(tensor)]) for tensor in tensors)

    return LayerCost(
        forward_seconds=f,
        inputs_seconds=b,
        weights_seconds=w,
        update_seconds=update,
        output_bytes=num_bytes(functions.made),
        held_bytes=num_bytes(own),
        held_for_weights_bytes=num_bytes(tensor for key, tensor in later.items() if key not in inputs | outputs),
        parameter_bytes=sum(map(_num_bytes, functions.weights)),
        slot_bytes=slots,
        holds_outputs=float(not outputs.isdisjoint(stashed.keys() - inputs)),
        holds_inputs=float(not inputs.isdisjoint(for_backward)),
        holds_inputs_for_weights=float(not inputs.isdisjoint({*later, *for_weights})),
        is_alias=float(not outputs.isdisjoint(inputs)),
    )


def _feeds(function: GraphFunction | None) -> dict[int, Any]:
    return {} if function is None else {id(tensor): tensor for tensor in function.feeds}


def _values(functions: LayerFunctions, values: Sequence[Any]) -> dict[int, Any]:
    """For each tensor of the graph that is fed. Weights are small random numbers: the model's may have no values."""
    generator = np.random.default_rng(0)

    def drawn(tensor: Any) -> Any:
        shape = tensor.shape.as_list()
        if not tensor.dtype.is_floating:
            return tf.zeros(shape, tensor.dtype)
        return tf.cast(generator.uniform(0.01, 0.1, shape).astype(np.float32), tensor.dtype)

    known = dict(zip(map(id, functions.read), values, strict=True))
    known.update((id(tensor), drawn(tensor)) for tensor in (*functions.variables, *functions.given))
    known.update((id(tensor), tf.zeros(tensor.shape, tensor.dtype)) for tensor in functions.sums)
    return known


def _in_turn(
    parts: list[tuple[GraphFunction, list[Any]]], known: dict[int, Any], calls: CallCost, clock: Clock, other_bytes: int
) -> dict[int, float]:
    """The seconds of each part, by its identity. `known` gets what they make.

    Args:
        parts: With the tensors that are in the caches when it begins.
        known: Values, by the identity of a tensor.
        calls: What calls cost here.
        clock: Seconds.
        other_bytes: See `cost_of`.
    """
    spent: dict[int, list[float]] = {id(part): [] for part, _ in parts}
    for part, _ in parts:  # TensorFlow traces and plans in the first call
        known.update(zip(map(id, part.fetches), part(known), strict=True))
    work_of_others = np.zeros(min(other_bytes, MOST_OTHER_BYTES) // 8)
    begin = clock()
    for turn in range(MOST_REPEATS):
        if turn >= 3 and clock() - begin > ENOUGH_SECONDS:
            break
        for part, handed in parts:
            work_of_others += 1
            for tensor in handed:
                np.asarray(known[id(tensor)]).tobytes()
            before = clock()
            part(known)
            spent[id(part)].append(clock() - before)
    return {id(part): max(0.0, statistics.median(spent[id(part)]) - calls.seconds(part)) for part, _ in parts}


def _update(weights: list[Any], optimizer: Any, calls: CallCost, clock: Clock) -> tuple[float, int]:
    """The seconds of an update of such weights, and the bytes of the slots, with a copy of the optimizer."""
    if optimizer is None or not weights:
        return 0.0, 0
    own = type(optimizer).from_config(optimizer.get_config())
    others = [keras.Variable(tf.zeros(one.shape, one.dtype), dtype=one.dtype, name="weight") for one in weights]
    own.build(others)
    gradients = [tf.ones(one.shape, one.dtype) for one in others]
    function = tf.function(lambda: own.apply(gradients, others), autograph=False).get_concrete_function()
    seconds = _typical(function, clock, 5) - calls.seconds()
    slots = sum(_num_bytes(one) for one in own.variables if len(one.shape))
    return max(0.0, seconds), slots


def _typical(function: Callable[[], object], clock: Clock, repeats: int) -> float:
    function()
    spent = []
    for _ in range(repeats):
        begin = clock()
        function()
        spent.append(clock() - begin)
    return statistics.median(spent)


def _num_bytes(tensor: Any) -> int:
    return int(np.prod(tuple(tensor.shape), dtype=np.int64)) * int(tf.as_dtype(tensor.dtype).size)
