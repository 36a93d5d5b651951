"""Stores and restores attributes of objects that do not support snapshots themselves.

An object's own ``state_dict()`` / ``load_state_dict(state)``, or ``get_state()`` / ``set_state(state)``, comes first.
Without one, its attributes are taken as far as they are numbers, strings, lists, dictionaries, arrays, variables or
random generators; the others are what the script has made them.
"""

import itertools
import logging
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.resilience.object_state import (
    CannotHoldError,
    GeneratorState,
    Tensors,
    VariableValue,
    encode,
    is_variable,
    mapped_part,
    state_of_generator,
)

_LOGGER = logging.getLogger("paceline")

_HOOKS = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


@dataclass(frozen=True, slots=True)
class Attribute:
    """One of an object's, looked at once."""

    name: str
    value: Any
    encoded: Any
    """As JSON."""
    arrays: Tensors | None
    """Those that it names; None where a snapshot cannot hold the value."""


IsKept = Callable[[Attribute], bool]
"""Whether a snapshot should hold an attribute; asked, too, about those that it cannot hold."""


def encode_captured(
    thing: Any, tensors: Tensors, path: str, left_out: frozenset[str] = frozenset(), is_kept: IsKept | None = None
) -> Any:
    """The state of an object as JSON; its arrays are added to `tensors`. Each value is looked at once: a step waits.

    Args:
        thing: The object.
        tensors: Where arrays go.
        path: What they are called.
        left_out: Attributes that are not its state.
        is_kept: Which of the others are; None: all that can be held.
    """
    getter = getter_of(thing)
    if getter is not None:
        return encode({"hook": getter, "state": getattr(thing, getter)()}, tensors, path)
    attributes, unchanged = {}, []
    for attribute in attributes_of(thing, path, left_out):
        is_wanted = is_kept is None or is_kept(attribute)
        if attribute.arrays is None:
            continue
        if is_wanted:
            attributes[attribute.name] = attribute.encoded
            tensors.update(attribute.arrays)
        else:
            unchanged.append(attribute.name)
    return {"hook": None, "state": attributes, "unchanged": unchanged}


def getter_of(thing: Any) -> str | None:
    """The method that tells an object's state; None where its attributes do."""
    for getter, setter in _HOOKS:
        if callable(getattr(thing, getter, None)) and callable(getattr(thing, setter, None)):
            return getter
    return None


def attributes_of(thing: Any, path: str = "", left_out: frozenset[str] = frozenset()) -> Iterator[Attribute]:
    """By name; their arrays are called after `path`."""
    for name, value in sorted(getattr(thing, "__dict__", {}).items(), key=lambda item: item[0]):
        if name in left_out:
            continue
        if mapped_part(value) is not None:
            yield Attribute(name, value, None, None)
            continue
        arrays: Tensors = {}
        try:
            yield Attribute(name, value, encode(value, arrays, f"{path}/{name}"), arrays)
        except CannotHoldError:
            yield Attribute(name, value, None, None)


def restore(thing: Any, state: Mapping[str, Any], initial_state: Mapping[str, Any] | None = None) -> None:
    """Puts `state` back into an object like the one that `encode_captured` was given.

    Args:
        thing: The object.
        state: Its state, decoded.
        initial_state: By name, what attributes hold of which the snapshot says that they had not been changed.
    """
    for getter, setter in _HOOKS:
        if state["hook"] == getter:
            getattr(thing, setter)(state["state"])
            return
    values = {name: value for name, value in (initial_state or {}).items() if name in state["unchanged"]}
    without_place = []
    for name, value in {**values, **state["state"]}.items():
        old = getattr(thing, name, None)
        if has_place(old, value):
            setattr(thing, name, put_into(old, value))
        else:
            without_place.append(name)
    if without_place:
        _LOGGER.warning(
            "%s: in the snapshot, %s contained random generators or variables, but the script has not created "
            "them yet: the values of the script are kept",
            type(thing).__name__,
            ", ".join(without_place),
        )


def has_place(old: Any, new: Any) -> bool:
    """Whether `old` has a random generator or variable wherever `new` has the state of one: only a script makes them.

    A callback may make its own in `on_train_begin`, which does not run in a `fit` that is passed over.
    """
    if isinstance(new, GeneratorState):
        return state_of_generator(old) is not None
    if isinstance(new, VariableValue):
        return is_variable(old)
    if isinstance(new, dict):
        return all(has_place(_held(old, key, value), value) for key, value in new.items())
    if isinstance(new, (list, tuple, deque, set, frozenset)):
        olds = old if type(old) is type(new) and isinstance(old, (list, tuple, deque)) else ()
        return all(map(has_place, itertools.chain(olds, itertools.repeat(None)), new))
    return True


def put_into(old: Any, new: Any) -> Any:
    """What an attribute should hold, given it holds `old` and the snapshot says `new`, for which it `has_place`.

    Containers, arrays and generators keep their identity, since the script may hold them, too, and dictionaries their
    type.
    """
    if isinstance(new, GeneratorState):
        _set_generator(old, new.state)
        return old
    if isinstance(new, VariableValue):
        old.assign(new.value)
        return old
    if type(old) is type(new) and isinstance(new, (list, deque, tuple)):
        items = [*map(put_into, old, new), *itertools.islice(new, len(old), None)]
        if isinstance(old, tuple):
            return tuple(items)
        old.clear()
        old.extend(items)
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        merged = {key: put_into(_held(old, key, value), value) for key, value in new.items()}
        old.clear()
        old.update(merged)
        return old
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray) and old.flags.writeable:
        is_alike = old.shape == new.shape and old.dtype == new.dtype
        if is_alike:
            np.copyto(old, new)
        return old if is_alike else new
    return new


def _held(old: Any, key: Any, new: Any) -> Any:
    """What `old` has under `key`, or, where that is another dictionary, would make of itself."""
    if not isinstance(old, dict) or key in old:
        return old[key] if isinstance(old, dict) else None
    if isinstance(new, dict) and isinstance(old, defaultdict) and old.default_factory is not None:
        return old.default_factory()
    return None


def _set_generator(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)
