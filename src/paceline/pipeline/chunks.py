"""The chunks of a model: which layers each has, what each receives from earlier ones, and what each hands on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from paceline.errors import ConfigurationError
from paceline.pipeline import compat
from paceline.pipeline.model_layers import ModelLayer, ModelLayers


@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive layers of a model.

    Args:
        number: Which chunk.
        layers: Its layers, in the order in which Keras runs them.
        received: The `KerasTensor`s that earlier chunks make and this one reads, in the order of the layers.
        handed_on: Those that it makes and later chunks read.
        outputs: The model's outputs; of the last chunk only. An earlier chunk's are among `received`.
        of_earlier: Those of its variables that an earlier chunk has, too.
        mask_calls: The calls that compute, from the inputs of the model, the masks of what it receives and outputs.
    """

    number: int
    layers: tuple[ModelLayer, ...]
    received: tuple[Any, ...]
    handed_on: tuple[Any, ...]
    outputs: tuple[Any, ...] = ()
    mask_calls: tuple[Any, ...] = ()
    of_earlier: tuple[Any, ...] = ()

    @property
    def variables(self) -> list[Any]:
        """The Keras variables of its layers, each once."""
        found = {id(variable): variable for layer in self.layers for variable in layer.variables}
        return list(found.values())


@dataclass(frozen=True, eq=False)
class Chunks:
    """A model, cut.

    Args:
        chunks: In the order of the layers.
        edges: For each pair (source, target) of chunks, the `KerasTensor`s that `target` reads of `source`; ascending.
    """

    chunks: tuple[Chunk, ...]
    edges: dict[tuple[int, int], tuple[Any, ...]]


def cut(model: Any, layers: ModelLayers, cuts: Sequence[int]) -> Chunks:
    """The chunks of a model.

    Args:
        model: Sequential or Functional, built.
        layers: Its.
        cuts: Each chunk ends behind so many layers; the last number is that of all layers.
    """
    parts = [layers.layers[first:last] for first, last in pairwise((0, *cuts))]
    maker = {id(tensor): number for number, part in enumerate(parts) for layer in part for tensor in layer.outputs}
    last = len(parts) - 1
    edges: dict[tuple[int, int], dict[int, Any]] = {}
    for number, part in enumerate(parts):
        read = [tensor for layer in part for tensor in layer.inputs] + (list(model.outputs) if number == last else [])
        for tensor in read:
            source = maker.get(id(tensor), number)  # an input of the model is everywhere
            if source != number:
                edges.setdefault((source, number), {})[id(tensor)] = tensor
    tensors = {edge: tuple(found.values()) for edge, found in sorted(edges.items())}

    def each_once(of: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        return tuple({id(tensor): tensor for group in of for tensor in group}.values())

    chunks: list[Chunk] = []
    known: set[int] = set()
    for number, part in enumerate(parts):
        received = each_once([group for (_, target), group in tensors.items() if target == number])
        outputs = tuple(model.outputs) if number == last else ()
        handed_on = each_once([group for (source, _), group in tensors.items() if source == number])
        variables = {id(one): one for layer in part for one in layer.variables}
        of_earlier = tuple(one for key, one in variables.items() if key in known)
        known.update(variables)
        masks = _mask_calls(model, [*received, *outputs])
        chunks.append(Chunk(number, part, received, handed_on, outputs, masks, of_earlier))
    return Chunks(tuple(chunks), tensors)


def _mask_calls(model: Any, tensors: list[Any]) -> tuple[Any, ...]:
    """A mask follows from what the model is called with: it is computed again where it is needed, and never sent.

    Raises:
        ConfigurationError: it depends on weights.
    """
    masks = [mask for tensor in tensors if (mask := compat.get_keras_mask(tensor)) is not None]
    if not masks:
        return ()
    calls = [call for call in compat.calls_of(model.inputs, masks) if not call.is_input]
    if weighed := [call.operation.name for call in calls if getattr(call.operation, "variables", None)]:
        raise ConfigurationError(
            f"A mask that one stage would hand to another one is computed by {', '.join(weighed)}, which have "
            "variables: only masks that follow from the inputs alone can pass a cut. Cut elsewhere. [pipeline]"
        )
    return tuple(calls)
