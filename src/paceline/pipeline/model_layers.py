"""The layers of a Keras model in the order in which Keras runs them, with what each reads, and which belong together.

A *layer* is here one call of a Keras operation: of a layer, of another model, or of a function of `keras.ops`. The
inputs of the model are no layers: every stage has the data.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from paceline.errors import ConfigurationError
from paceline.pipeline import compat


@dataclass(frozen=True, eq=False)
class ModelLayer:
    """One call of an operation.

    Args:
        name: The operation's; of its further calls with their number, so that each has its own: `dense (call 2)`.
        operation: A `keras.Layer` (also a model within the model), or another `keras.Operation`.
        reads: The positions of the layers whose outputs the call reads, ascending.
        inputs: The `KerasTensor`s that the call reads, each once; those that no layer of `reads` makes are inputs of
            the model.
        outputs: The `KerasTensor`s that the call makes.
        call: Keras's node, with which the call can be made again (`compat.repeated`).
    """

    name: str
    operation: Any
    reads: tuple[int, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    call: Any

    @property
    def variables(self) -> list[Any]:
        """All Keras variables of the operation, also those that are not trained, such as the states of seeds."""
        arguments = keras.tree.flatten((self.call.arguments.args, self.call.arguments.kwargs))
        given = [one for one in arguments if isinstance(one, keras.Variable)]  # ops.matmul(x, layer.kernel)
        own = self.operation.variables if isinstance(self.operation, keras.Layer) else []
        return list({id(one): one for one in (*own, *given)}.values())

    @property
    def states(self) -> list[Any]:
        """Those that the operation may assign by itself, as it was not made to be trained by an optimizer."""
        if not isinstance(self.operation, keras.Layer):
            return []
        weights = set(map(id, compat.made_to_train(self.operation)))
        return [one for one in self.operation.variables if id(one) not in weights]


@dataclass(frozen=True, eq=False)
class ModelLayers:
    """What a pipeline cuts.

    Args:
        layers: In the order in which Keras runs them; each reads from earlier ones. A run of them is a chunk.
        ties: Groups of positions, ascending, which must be in one chunk, because they share states that both would
            assign. No position is in two groups.
        sharing: Such groups of those that share any variables, states or weights.
    """

    layers: tuple[ModelLayer, ...]
    ties: tuple[tuple[int, ...], ...]
    sharing: tuple[tuple[int, ...], ...]


def layers_of(model: Any) -> ModelLayers:
    """The layers of a Sequential or Functional model. A model within the model is one layer.

    Nothing is computed, and no value of a variable is read. Any rank may call this alone; all get the same.

    Raises:
        ConfigurationError: the model has no graph of layers (subclassed, not built, or without layers).
    """
    _refuse_without_graph(model)
    calls = [call for call in compat.calls_of(model.inputs, model.outputs) if not call.is_input]
    if not calls:
        raise ConfigurationError(
            f"The model {model.name!r} has no layers between its inputs and outputs, so there is nothing to divide "
            "into stages: add some. [pipeline]"
        )
    positions = {call: position for position, call in enumerate(calls)}
    layers = tuple(
        ModelLayer(
            name,
            call.operation,
            tuple(sorted({positions[source] for source in call.parent_nodes if source in positions})),
            tuple({id(tensor): tensor for tensor in call.input_tensors}.values()),
            tuple(call.outputs),
            call,
        )
        for name, call in zip(_names(calls), calls, strict=True)
    )
    return ModelLayers(
        layers, _groups([layer.states for layer in layers]), _groups([layer.variables for layer in layers])
    )


def _refuse_without_graph(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise ConfigurationError(
            f"Received {type(model).__name__}; expected a Keras model, as keras.Sequential or keras.Model(inputs, "
            "outputs) makes. [pipeline]"
        )
    if not compat.runs_its_graph(model):
        raise ConfigurationError(
            f"The model {model.name!r} has a `call` of its own (class {type(model).__name__}), and so no graph of "
            "layers that can be divided into stages: make it with keras.Sequential, or keras.Model(inputs, outputs). "
            "[pipeline]"
        )
    if getattr(model, "inputs", None) is None:
        raise ConfigurationError(
            f"The model {model.name!r} is not built, so its layers have no shapes yet: begin it with "
            "keras.Input(shape), or call model.build(input_shape). [pipeline]"
        )


def _names(calls: list[Any]) -> Iterator[str]:
    seen = Counter[str]()
    for call in calls:
        name = call.operation.name
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} (call {seen[name]})"


def _groups(variables_of: Sequence[Sequence[Any]]) -> tuple[tuple[int, ...], ...]:
    """Positions with variables in common."""
    # Calls of one operation without variables need no tie: stages may each have it.
    group_of: dict[int, set[int]] = {}  # by position; positions that are tied have the same set
    owner: dict[int, int] = {}  # by the identity of a variable: the first position that has it
    for position, variables in enumerate(variables_of):
        group_of[position] = {position}
        for variable in variables:
            first = group_of[owner.setdefault(id(variable), position)]
            if first is not group_of[position]:
                first |= group_of[position]
                group_of.update(dict.fromkeys(first, first))
    groups = {tuple(sorted(group)) for group in group_of.values() if len(group) > 1}
    return tuple(sorted(groups))
