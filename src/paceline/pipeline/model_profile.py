"""The profile of a model: what each of its layers costs on one micro-batch, measured on the ranks of a job, or on one.

Layers that are equal (class, configuration, what they read) are measured once. The ranks share the work, and all get
all costs, so that all of them cut the model at the same places.
"""

import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.comm.group import Group
from paceline.comm.solo import SoloGroup
from paceline.errors import ConfigurationError
from paceline.pipeline.common_failures import raised_on_all
from paceline.pipeline.layer_costs import CallCost, Clock, LayerCost, cost_of
from paceline.pipeline.layer_functions import LayerFunctions
from paceline.pipeline.model_layers import ModelLayer, ModelLayers, layers_of
from paceline.plan.profile import Layer, Profile, SharedWeights

Progress = Callable[[int, int], None]
"""Is called with (layers that have been measured, all that this rank measures)."""


@dataclass(frozen=True, eq=False)
class _Unique:
    """A layer that stands for all that are equal to it."""

    layer: ModelLayer
    wanted: tuple[bool, ...]


def profile_of(
    model: Any,
    rows: int,
    group: Group | None = None,
    *,
    data: Any = None,
    progress: Progress | None = None,
    clock: Clock = time.perf_counter,
) -> Profile:
    """Measures the layers of a model.

    Weights are stand-ins: the model's need no values, and keep those that they have. Slots are those of the optimizer
    that the model is compiled with; of one that is not compiled there are none.

    Args:
        model: Sequential or Functional.
        rows: Of a micro-batch.
        group: Of a job; every rank of the group calls, with equal models. None: this process alone.
        data: A batch of the model's inputs (an array, or a list or dict of arrays) of at least `rows` rows. None:
            random numbers; for layers that look up rows, of the rows that they have.
        progress: Is told how far this rank is.
        clock: Seconds.

    Returns:
        The same profile on every rank of the group.

    Raises:
        ConfigurationError: the model has no graph, or a tensor whose sizes are not known before training.
        RuntimeError: measuring has failed on another rank; there the exception itself is raised.
    """
    group = group or SoloGroup()
    found = layers_of(model)
    _refuse_unknown_sizes(found)
    uniques, place_of = _uniques(found)
    mine = range(group.rank, len(uniques), group.size)
    calls = CallCost(clock)
    given = _given(model, data, rows)
    optimizer = getattr(model, "optimizer", None)
    other_bytes = sum(_num_bytes(layer, rows) for layer in found.layers)
    table = []
    with raised_on_all(group):
        for number, place in enumerate(mine):
            if progress:
                progress(number, len(mine))
            one = uniques[place]
            specs = [_spec(tensor, rows) for tensor in one.layer.inputs]
            values = [
                given.get(id(tensor), _random(one.layer, spec))
                for tensor, spec in zip(one.layer.inputs, specs, strict=True)
            ]
            functions = LayerFunctions(one.layer, specs, one.wanted)
            cost = cost_of(functions, values, optimizer, calls, clock, other_bytes)
            table.append([float(place), calls.seconds(), *cost.numbers])
    width = 2 + len(fields(LayerCost))
    gathered = np.concatenate(group.all_gather(np.array(table, np.float64).reshape(-1, width)))
    costs = {int(row[0]): LayerCost(*row[2:].tolist()) for row in gathered}
    layers = _layers(found, [costs[place] for place in place_of])
    call_seconds = statistics.median(gathered[:, 1].tolist())
    return Profile(layers, found.ties, found.sharing, call_seconds, _shared_weights(found, layers))


def _refuse_unknown_sizes(found: ModelLayers) -> None:
    for layer in found.layers:
        for tensor in (*layer.inputs, *layer.outputs):
            if None in tensor.shape[1:]:
                raise ConfigurationError(
                    f"The layer {layer.name!r} has a tensor of shape {tuple(tensor.shape)}, so what it costs is not "
                    "known before training: give keras.Input the whole shape, or divide the layers by hand with "
                    "balance=[...]. [pipeline]"
                )


def _uniques(found: ModelLayers) -> tuple[list[_Unique], list[int]]:
    """The layers that are measured, and for each layer of the model the place of its own among them."""
    trained: list[bool] = []  # for each layer: whether the gradient of its output is needed
    uniques: dict[str, int] = {}
    measured: list[_Unique] = []
    place_of = []
    maker = {id(tensor): at for at, layer in enumerate(found.layers) for tensor in layer.outputs}
    for at, layer in enumerate(found.layers):
        wanted = tuple(id(tensor) in maker and trained[maker[id(tensor)]] for tensor in layer.inputs)
        trained.append(any(one.trainable for one in layer.variables) or any(wanted))
        place = uniques.setdefault(_identity(layer, wanted, at), len(measured))
        if place == len(measured):
            measured.append(_Unique(layer, wanted))
        place_of.append(place)
    return measured, place_of


def _identity(layer: ModelLayer, wanted: tuple[bool, ...], at: int) -> str:
    """A text that is equal only for layers that cost the same."""
    try:
        config = layer.operation.get_config()
    except Exception:  # a layer of the user's that says nothing of itself
        return str(at)
    tensors = [(list(tensor.shape), str(tensor.dtype)) for tensor in (*layer.inputs, *layer.outputs)]
    arguments = layer.call.arguments
    places = {id(tensor): place for place, tensor in enumerate(layer.inputs)}
    used = keras.tree.map_structure(
        lambda one: places.get(id(one), repr(one)), (list(arguments.args), dict(arguments.kwargs))
    )
    kind = f"{type(layer.operation).__module__}.{type(layer.operation).__qualname__}"
    is_trained = [bool(variable.trainable) for variable in layer.variables]
    config = {name: value for name, value in config.items() if name != "name"}
    return json.dumps([kind, config, tensors, used, wanted, is_trained], default=repr, sort_keys=True)


def _spec(tensor: Any, rows: int) -> Any:
    return tf.TensorSpec([rows if tensor.shape[0] is None else tensor.shape[0], *tensor.shape[1:]], tensor.dtype)


def _num_bytes(layer: ModelLayer, rows: int) -> int:
    """Of its variables and outputs."""
    return sum(_size(_spec(tensor, rows)) for tensor in (*layer.outputs, *layer.variables))


def _size(tensor: Any) -> int:
    """In bytes."""
    return int(math.prod(tensor.shape) * tf.as_dtype(tensor.dtype).size)


def _given(model: Any, data: Any, rows: int) -> dict[int, Any]:
    """The values of the model's inputs in `data`, by the identity of the `KerasTensor`."""
    if data is None:
        return {}
    leaves = keras.tree.flatten(data)
    return {
        id(tensor): tf.convert_to_tensor(leaf[:rows], tensor.dtype)
        for tensor, leaf in zip(model.inputs, leaves, strict=True)
    }


def _random(layer: ModelLayer, spec: Any) -> Any:
    generator = np.random.default_rng(0)
    if tf.as_dtype(spec.dtype).is_floating:
        return tf.cast(generator.normal(size=spec.shape).astype(np.float32), spec.dtype)
    if spec.dtype == tf.string:
        return tf.fill(spec.shape, "")
    return tf.cast(generator.integers(0, getattr(layer.operation, "input_dim", 2), spec.shape), spec.dtype)


def _shared_weights(found: ModelLayers, layers: Sequence[Layer]) -> tuple[SharedWeights, ...]:
    """What several layers have, of which each was measured with all of its own weights."""
    positions: dict[int, list[int]] = {}  # by the identity of a weight
    sizes: dict[int, int] = {}
    for at, layer in enumerate(found.layers):
        for weight in layer.variables:
            if weight.trainable:
                positions.setdefault(id(weight), []).append(at)
                sizes[id(weight)] = _size(weight)
    totals = Counter[tuple[int, ...]]()
    for weight_id, places in positions.items():
        if len(places) > 1:
            totals[tuple(places)] += sizes[weight_id]
    return tuple(
        SharedWeights(
            places,
            total,
            min(layers[at].slot_bytes * total // layers[at].parameter_bytes for at in places),
            min(layers[at].update_seconds * total / layers[at].parameter_bytes for at in places),
        )
        for places, total in sorted(totals.items())
        if total
    )


def _layers(found: ModelLayers, costs: Sequence[LayerCost]) -> tuple[Layer, ...]:
    """What is held of each layer also depends on the layers that read from it."""
    num_layers = len(found.layers)
    readers: list[list[int]] = [[] for _ in range(num_layers)]
    for at, layer in enumerate(found.layers):
        for source in layer.reads:
            readers[source].append(at)
    held, held_for_weights = [False] * num_layers, [False] * num_layers  # its outputs
    for at in reversed(range(num_layers)):
        after = [(costs[reader], reader) for reader in readers[at]]
        held[at] = bool(costs[at].holds_outputs) or any(
            cost.holds_inputs or (cost.is_alias and held[reader]) for cost, reader in after
        )
        held_for_weights[at] = any(
            cost.holds_inputs_for_weights or (cost.is_alias and held_for_weights[reader]) for cost, reader in after
        )
    return tuple(
        Layer(
            name=layer.name,
            forward_seconds=cost.forward_seconds,
            inputs_seconds=cost.inputs_seconds,
            weights_seconds=cost.weights_seconds,
            reads=layer.reads,
            output_bytes=int(cost.output_bytes),
            stash_bytes=int(cost.held_bytes + cost.output_bytes * (held[at] and not cost.is_alias)),
            weights_stash_bytes=int(
                cost.held_for_weights_bytes + cost.output_bytes * (held_for_weights[at] and not cost.is_alias)
            ),
            parameter_bytes=int(cost.parameter_bytes),
            slot_bytes=int(cost.slot_bytes),
            update_seconds=cost.update_seconds,
        )
        for at, (layer, cost) in enumerate(zip(found.layers, costs, strict=True))
    )
