"""Reading the fields of a JSON object that somebody else may have written."""

from collections.abc import Iterator
from typing import NoReturn

from paceline.store.damage import DamagedSnapshotError

_MAX_SHOWN_CHARACTERS = 60
_MAX_SECONDS = 1e11
"""The year 5138."""


class Fields:
    """The fields of one JSON object, each read as what it must be.

        step = Fields(value, "manifest.json").count("step")

    Args:
        value: The object.
        what: What it is, for messages.

    Raises:
        DamagedSnapshotError: it is no object; from each method: the field is missing or something else.
    """

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise DamagedSnapshotError(f"{what} is {_shown(value)}; expected an object")
        self._value = value
        self._what = what

    def text(self, name: str) -> str:
        """A string."""
        value = self._field(name)
        return value if isinstance(value, str) else self._refuse(name, value, "a string")

    def count(self, name: str) -> int:
        """An integer from 0."""
        value = self._field(name)
        if isinstance(value, int) and _is_count(value):
            return value
        return self._refuse(name, value, "an integer from 0")

    def seconds(self, name: str) -> float:
        """A finite number from 0."""
        value = self._field(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_SECONDS:
            return float(value)
        return self._refuse(name, value, "a number of seconds")

    def mapping(self, name: str) -> dict[str, object]:
        """An object."""
        value = self._field(name)
        return value if isinstance(value, dict) else self._refuse(name, value, "an object")

    def objects(self, name: str) -> Iterator["Fields"]:
        """The members of a list, each an object."""
        value = self._field(name)
        members = value if isinstance(value, list) else self._refuse(name, value, "a list")
        return (Fields(member, f"{self._what}: {name}[{index}]") for index, member in enumerate(members))

    def counts(self, name: str) -> list[int]:
        """A list of integers from 0."""
        value = self._field(name)
        members = value if isinstance(value, list) else self._refuse(name, value, "a list")
        if not all(_is_count(member) for member in members):
            self._refuse(name, value, "a list of integers from 0")
        return members

    def _field(self, name: str) -> object:
        if name not in self._value:
            raise DamagedSnapshotError(f"{self._what} has no field {name!r}")
        return self._value[name]

    def _refuse(self, name: str, value: object, expected: str) -> NoReturn:
        raise DamagedSnapshotError(f"{self._what}: {name} is {_shown(value)}; expected {expected}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return f"a {type(value).__name__} of {len(value)}"
    text = ascii(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}..."
