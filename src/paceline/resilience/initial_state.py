"""The attributes of an object as the script set them, to find those that training changes.

A snapshot holds what training has changed. The rest belongs to the script: a path, a batch size or a patience that a
rerun sets otherwise stays as the rerun sets it.

attribute, seen when a snapshot is taken    in it       a rerun
as it was handed over                       its name    has it as its own script hands it over
another than that, or it was once           its value   gets that
it holds a variable                         its value   gets that: it may be one of the model's, which a snapshot
                                                        changes, so what it held before must not come back
"""

import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from paceline.resilience.attributes import Attribute
from paceline.resilience.object_state import Frozen, frozen, mapped_part
from paceline.store.shards import new_checksum
from paceline.wire.codec import encode

_MAX_IDENTITIES = 64
"""Of more things that are not values a checksum is enough."""


class InitialState:
    """How an object was handed over.

    Args:
        attributes: Its attributes, as they are now.
        changed: Names of those that are known to change.
        sampled_bytes: How much of an array with several dimensions is looked at; None: all.
        holds_values: Whether `values` will be asked for.
    """

    def __init__(
        self,
        attributes: Iterable[Attribute],
        changed: set[str],
        sampled_bytes: int | None = None,
        *,
        holds_values: bool = False,
    ) -> None:
        self.changed = changed
        """For good: one that changes may come to look as it did at first."""
        self._sampled_bytes = sampled_bytes
        self._looks: dict[str, Any] = {}
        self._values: dict[str, Frozen] = {}
        for attribute in attributes:
            if attribute.name in changed or _holds_variable(attribute):
                continue
            self._looks[attribute.name] = self.look(attribute)
            if holds_values and attribute.arrays is not None:
                self._values[attribute.name] = frozen(attribute.encoded, attribute.arrays)

    def has_changed(self, attribute: Attribute) -> bool:
        """Whether it is another than at first, or was when this was asked before."""
        name = attribute.name
        if name not in self.changed and (
            _holds_variable(attribute) or name not in self._looks or self._looks[name] != self.look(attribute)
        ):
            self.changed.add(name)
        return name in self.changed

    def look(self, attribute: Attribute) -> Any:
        """Something that is another if the attribute has changed."""
        value = attribute.value
        if (part := mapped_part(value)) is not None:
            return part  # what is written to a file stays there
        if attribute.arrays is not None:
            return _text_of(attribute.encoded), [self._checksum(array) for array in attribute.arrays.values()]
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return self._checksum(value)
        if isinstance(value, (list, tuple, deque)):
            return _identities(value)  # it may be shuffled in place
        return id(value)

    def take_values(self) -> Mapping[str, Any]:
        """What the attributes held, by name; once."""
        values, self._values = self._values, {}
        return {name: value.value for name, value in values.items()}

    def _checksum(self, array: Any) -> tuple[str, tuple[int, ...], str]:
        step = 1
        if array.ndim > 1 and self._sampled_bytes is not None:
            step = max(1, -(-array.nbytes // self._sampled_bytes))
        rows: Any = np.ascontiguousarray(array[::step] if array.ndim else array)
        return str(array.dtype), array.shape, _checksum(rows.reshape(-1).view(np.uint8))


def _holds_variable(attribute: Attribute) -> bool:
    return bool(attribute.arrays) and _has_variable(attribute.encoded)


def _has_variable(encoded: Any) -> bool:
    if isinstance(encoded, dict):
        return encoded.get("!") == "variable" or any(map(_has_variable, encoded.values()))
    return isinstance(encoded, list) and any(map(_has_variable, encoded))


def _identities(values: Iterable[Any]) -> Any:
    identities = [*map(id, values)]
    return (
        identities if len(identities) <= _MAX_IDENTITIES else _checksum(np.array(identities, np.uint64).view(np.uint8))
    )


def _text_of(encoded: Any) -> str:
    return _checksum(encode(_without_places(encoded)))


def _without_places(encoded: Any) -> Any:
    """Without what arrays are called, which is another in each place of a snapshot."""
    if isinstance(encoded, list):
        return [_without_places(item) for item in encoded]
    if isinstance(encoded, dict):
        is_array = "!" in encoded
        return {key: _without_places(item) for key, item in encoded.items() if not (is_array and key == "at")}
    return encoded


def _checksum(content: Any) -> str:
    read = new_checksum()
    read.update(content)
    return read.hexdigest()


# What is known of the objects of this process, by `id`: a user's class may have no hash.
_initial_states: dict[int, InitialState] = {}


def take_initial_state(
    thing: Any,
    attributes: Iterable[Attribute],
    sampled_bytes: int | None = None,
    *,
    holds_values: bool = False,
) -> InitialState:
    """The script has handed `thing` over to a `fit`; see `InitialState`. What earlier ones have changed stays known."""
    before = initial_state_of(thing)
    if before is None:
        weakref.finalize(thing, _initial_states.pop, id(thing), None)
    changed = set() if before is None else before.changed
    initial_state = _initial_states[id(thing)] = InitialState(
        attributes, changed, sampled_bytes, holds_values=holds_values
    )
    return initial_state


def initial_state_of(thing: Any) -> InitialState | None:
    """As it was last handed over; None: it never was."""
    return _initial_states.get(id(thing))


def mark_changed(thing: Any, names: Iterable[str]) -> None:
    """A snapshot says that training changes these attributes of `thing`."""
    (initial_state_of(thing) or take_initial_state(thing, ())).changed.update(names)
