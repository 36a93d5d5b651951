"""The state of a model as parts of a snapshot: weights and optimizers, what Keras does not list, sums over rows.

Keras does not list other optimizers of a model, and TensorFlow variables in attributes: a GAN keeps its two optimizers
in attributes, and the one that `compile` made may never be used; a layer may count in a `tf.Variable`. Keras saves
neither, a run that resumes needs both.
"""

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from paceline.errors import ConfigurationError
from paceline.fit import compat
from paceline.resilience.parts import Arrays, Part, Saved, Scope
from paceline.resilience.saved_variables import assign, check, described, variables_part

_LOGGER = logging.getLogger("paceline")

_VARIABLES, _OPTIMIZERS = "variables", "optimizers"
_TRAINS, _HOLDS = "trains", "variables"
SEEN_BY_EVALUATIONS = ("model", "model.unlisted")
"""Which of the parts: an evaluation resets the metrics itself."""


def model_parts(model: Any, *, is_chief: bool) -> list[Part]:
    """All of a model but its history.

    Args:
        model: Which; may be built, or compiled again, later.
        is_chief: Whether this rank says what all ranks see.
    """

    return [
        Part(
            "model",
            Scope.GROUP,
            lambda arrays: _captured(model, arrays),
            lambda saved: _restore(model, saved),
            lambda saved: _prepare(model, saved),
        ),
        unlisted_part("model.unlisted", lambda: unlisted_state_of(model), is_chief=is_chief),
        variables_part("model.sums", Scope.GROUP, lambda: own_variables(model), "metric variable"),
    ]


def _captured(model: Any, arrays: Arrays) -> Any:
    return {_VARIABLES: described(shared_variables(model), arrays), _OPTIMIZERS: describe_optimizers(model)}


def _prepare(model: Any, saved: Saved) -> None:
    look_again(model)
    own = weights(model)
    _check(model, own, saved.state[_VARIABLES][: len(own)])  # before anything is changed
    with model.distribute_strategy.scope():  # those that were made in it can be built nowhere else
        build_optimizers(model, saved.state[_OPTIMIZERS])
    look_again(model)  # with what building has made
    _check(model, shared_variables(model, saved.state[_OPTIMIZERS]), saved.state[_VARIABLES])


def _restore(model: Any, saved: Saved) -> None:
    assign(shared_variables(model, saved.state[_OPTIMIZERS]), saved.state[_VARIABLES], saved)


def _check(model: Any, found: Sequence[Any], saved: Sequence[Any]) -> None:
    try:
        check(found, saved, "variable")
    except ConfigurationError as fault:
        unbuilt = [layer.name for layer in compat.all_layers(model) if not layer.built]
        if not unbuilt:
            raise
        raise ConfigurationError(
            f"{', '.join(unbuilt)} has no weights before the first step, so the weights in the snapshot cannot be "
            "restored. Give it a keras.Input, or call it on a batch before fit; the run then resumes from here. "
            "[unbuilt-model]"
        ) from fault


def unlisted_part(name: str, find: "Callable[[], UnlistedState]", *, is_chief: bool) -> Part:
    """The variables of an `UnlistedState`; nothing says whether ranks have the same ones."""

    def restore(saved: Saved) -> None:
        found = find().variables
        if [list(variable.shape) for variable in found] == [shape for _, shape, _ in saved.state]:
            assign(found, saved.state, saved)
        elif is_chief:
            _LOGGER.warning(
                "the snapshot has %d TensorFlow variables from attributes of the model (%s), but the model now has %d "
                "(%s): these variables are not restored. Create them in the constructor or build() of the layer.",
                len(saved.state),
                ", ".join(path for path, _, _ in saved.state) or "none",
                len(found),
                ", ".join(variable.name for variable in found) or "none",
            )

    return Part(name, Scope.RANK, lambda arrays: described(find().variables, arrays), restore)


# What is shared by the replicas.


def weights(model: Any) -> list[Any]:
    """Weights and seed generators; each once."""
    return _others(model.variables, {id(variable) for variable in own_variables(model)})


def shared_variables(model: Any, optimizers: Sequence[Mapping[str, Any]] | None = None) -> list[Any]:
    """`weights`, then what its optimizers hold; each once.

    Args:
        model: Which.
        optimizers: As `describe_optimizers` has told of them: what each held then, if it holds more by now.
    """

    def found() -> list[Any]:
        own = {id(variable) for variable in own_variables(model)}
        return [*weights(model), *(held for variables in _of_optimizers(model, own, optimizers) for held in variables)]

    return found() if optimizers is not None else _remembered(model, "shared", found)


def describe_optimizers(model: Any) -> list[dict[str, Any]]:
    """Of each what it was built for, and how many of the `shared_variables` it holds.

    What it was built for are places among all that the model has; None: it has not been, and holds only the first few
    of its variables.
    """
    described: list[dict[str, Any]] = _remembered(model, "described", lambda: [*_descriptions(model)])
    return described


def _descriptions(model: Any) -> Iterator[dict[str, Any]]:
    places = {id(variable): place for place, variable in enumerate(_trainable_by_optimizers(model))}
    own = {id(variable) for variable in own_variables(model)}
    for optimizer, variables in zip(_inner_first(model), _of_optimizers(model, own), strict=True):
        trained = [places.get(id(variable), -1) for variable in compat.trained_variables(optimizer)]
        strangers = [variable.path for variable in compat.trained_variables(optimizer) if id(variable) not in places]
        if strangers:
            _LOGGER.warning(
                "the optimizer %s trains variables that are not part of the model (%s), so snapshots do not "
                "contain them and the run cannot be resumed exactly. Make the optimizer, or the network that "
                "owns the variables, an attribute of the model.",
                optimizer.name,
                ", ".join(strangers),
            )
        yield {_TRAINS: trained if optimizer.built else None, _HOLDS: len(variables)}


def _remembered(model: Any, what: str, find: Callable[[], Any]) -> Any:
    """What `find` gives; once for as long as no layer or optimizer is built and nobody looks at the model again."""
    held = unlisted_state_of(model)
    key = what, len(model.variables), *(optimizer.built for optimizer in held.optimizers)
    if key not in held.memo:
        held.memo[key] = find()
    return held.memo[key]


def build_optimizers(model: Any, described: Sequence[Mapping[str, Any]]) -> None:
    """Builds those that had been built when they were `described`."""
    candidates = _trainable_by_optimizers(model)
    for optimizer, then in reversed([*zip(_inner_first(model), described, strict=False)]):
        places = then[_TRAINS]
        if places is not None and not optimizer.built and all(0 <= place < len(candidates) for place in places):
            optimizer.build([candidates[place] for place in places])


def _trainable_by_optimizers(model: Any) -> list[Any]:
    return [*model.variables, *unlisted_state_of(model).variables]


def _inner_first(model: Any) -> list[Any]:
    """Its optimizers; those within others, which list theirs as their own, before them."""
    return unlisted_state_of(model).optimizers[::-1]


def _of_optimizers(
    model: Any, own: set[int], described: Sequence[Mapping[str, Any]] | None = None
) -> Iterator[list[Any]]:
    seen = own | {id(variable) for variable in model.variables}
    for index, optimizer in enumerate(_inner_first(model)):
        held = _others(optimizer.variables, seen)
        if described is not None and index < len(described):
            held = held[: described[index][_HOLDS]]
        seen |= {id(variable) for variable in optimizer.variables}
        yield held


def _others(variables: Iterable[Any], known: set[int]) -> list[Any]:
    return list({id(variable): variable for variable in variables if id(variable) not in known}.values())


def own_variables(model: Any) -> list[Any]:
    """Sums over rows: of metrics, and of gradients that are accumulated."""
    memo = unlisted_state_of(model).memo
    if "metrics" not in memo:
        memo["metrics"] = [*model.metrics]  # walks all layers; a metric may get its variables later
    return [*(one for metric in memo["metrics"] for one in metric.variables), *accumulated_gradients(model)]


def accumulated_gradients(model: Any) -> list[Any]:
    """Those of all its optimizers."""
    optimizers = unlisted_state_of(model).optimizers
    return [sums for optimizer in optimizers for sums in compat.accumulated_gradients(optimizer)]


# What Keras does not list.

_MAX_DEPTH = 16
_MAX_ITEMS = 10_000
"""Longer ones are data, a vocabulary."""


@dataclass(frozen=True, slots=True)
class UnlistedState:
    """In the order in which they are found, which is the same in each run of a script."""

    optimizers: list[Any] = field(default_factory=list)
    """The model's own first; those within another behind it."""
    variables: list[Any] = field(default_factory=list)
    """Those that no layer, metric or optimizer lists: TensorFlow's, and those of loss objects and users' optimizers."""
    memo: dict[Any, Any] = field(default_factory=dict)
    """What others have worked out from these, which snapshots need again and again."""


# By `id`: a user's class may have no hash. Looking takes milliseconds in a large model, so it is not done each time.
_known: dict[int, UnlistedState] = {}


def unlisted_state_of(model: Any) -> UnlistedState:
    """What `model` held when it was last looked at."""
    return _known[id(model)] if id(model) in _known else look_again(model)


def look_again(model: Any) -> UnlistedState:
    """What `model` holds now: after its first step there may be more than when it was made."""
    if id(model) not in _known:
        weakref.finalize(model, _known.pop, id(model), None)
    found = _known[id(model)] = _look(model)
    return found


def _look(model: Any) -> UnlistedState:
    optimizers: list[Any] = []
    variables = []
    listed = {id(_of_tensorflow(variable)) for variable in (*model.variables, *model.metrics_variables)}
    things = [getattr(model, "optimizer", None)]
    things += [thing for layer in compat.all_layers(model) for thing in _in(_attributes(layer))]
    for thing in things:  # gets longer: what an optimizer holds comes behind it
        if isinstance(thing, keras.optimizers.Optimizer) and all(thing is not known for known in optimizers):
            optimizers.append(thing)
            things += _in(_attributes(thing, but=compat.TRAINED))
    listed |= {id(_of_tensorflow(variable)) for optimizer in optimizers for variable in optimizer.variables}
    for thing in things:
        if isinstance(thing, (tf.Variable, keras.Variable)) and id(_of_tensorflow(thing)) not in listed:
            listed.add(id(_of_tensorflow(thing)))
            variables.append(thing)
    return UnlistedState(optimizers, variables)


def _attributes(holder: Any, but: str = "") -> dict[str, Any]:
    names = [name for name in vars(holder) if not name.startswith("_self_") and name != but]  # TensorFlow's notes
    return {name: vars(holder)[name] for name in names}


def _in(value: Any, depth: int = 0) -> Iterator[Any]:
    """What an attribute holds: itself, or what is in it."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, (list, tuple, Mapping)):
        items = value.values() if isinstance(value, Mapping) else value
        for item in items if len(value) <= _MAX_ITEMS else ():
            yield from _in(item, depth + 1)
    elif isinstance(value, keras.losses.Loss):
        yield from _in(_attributes(value), depth + 1)
    elif isinstance(value, (tf.random.Generator, keras.random.SeedGenerator)):
        yield value.state
    elif isinstance(value, tf.Module) and not isinstance(value, tf.Variable):
        yield from value.variables
    else:
        yield value


def _of_tensorflow(variable: Any) -> Any:
    return variable._value if isinstance(variable, keras.Variable) else variable  # None: of another stage
