"""The state of a `PyDataset` in snapshots, besides its data."""

import logging
from typing import Any

from paceline.resilience.attributes import Attribute, attributes_of, encode_captured, getter_of, restore
from paceline.resilience.initial_state import mark_changed, take_initial_state
from paceline.resilience.object_state import MAX_SMALL_BYTES, Tensors
from paceline.resilience.parts import Part, Scope

_LOGGER = logging.getLogger("paceline")

_SAMPLED_BYTES = 16 << 20
"""Of an array with several dimensions: a shuffle changes it everywhere."""


class SourceState:
    """Follows what of a data source changes besides its data, above all the order of the rows of a `PyDataset`.

    attribute                           in a snapshot
    as the script hands it over         never: a rerun makes it again, and may set it otherwise (`initial_state.py`)
    changed since, at most 4 MB         from then on
    larger, of one dimension            from then on: an order of rows that is shuffled
    larger, or no value that can be     never: these are the data; a warning says so if they change once they are there
      held

    Args:
        source: The `PyDataset`, as the script hands it over; None: there is none to follow.
        is_chief: Whether this rank says what all ranks see.
    """

    def __init__(self, source: Any, is_chief: bool) -> None:
        self._source = source
        self._is_chief = is_chief
        self._unheld: dict[str, Any] = {}
        """By name, how attributes that cannot be held looked when they were first there."""
        self._said: set[str] = set()
        if source is not None:
            attributes = [] if getter_of(source) else [*attributes_of(source)]
            self._initial_state = take_initial_state(source, attributes, _SAMPLED_BYTES)
            for attribute in attributes:
                self._warn_if_unheld(attribute)

    def part(self) -> Part:
        """The state of the source when a `fit` has ended."""
        return Part(
            "source",
            Scope.RANK,
            lambda arrays: self.encode(arrays.captured.live, arrays.name),
            lambda saved: self.put_back(saved.value),
        )

    def encode(self, tensors: Tensors, path: str) -> Any:
        """The state as it is now, whose arrays are added to `tensors`; None without a source."""
        return None if self._source is None else encode_captured(self._source, tensors, path, is_kept=self._is_kept)

    def put_back(self, state: Any) -> None:
        """Gives the source a decoded state."""
        if state is not None and self._source is not None:
            if state["hook"] is None:
                mark_changed(self._source, state["state"])
            restore(self._source, state)

    def _is_kept(self, attribute: Attribute) -> bool:
        return not self._warn_if_unheld(attribute) and self._initial_state.has_changed(attribute)

    def _warn_if_unheld(self, attribute: Attribute) -> bool:
        """Whether a snapshot cannot hold it; says so if it changes once it is there: a file may be opened late."""
        if _can_be_held(attribute):
            return False
        name, value = attribute.name, attribute.value
        if name in self._said or not self._is_chief:
            return True
        look = self._initial_state.look(attribute)
        if look != self._unheld.setdefault(name, look):
            self._said.add(name)
            _LOGGER.warning(
                "%s.%s changes during training, but cannot be stored in snapshots: %s. After a restart it has "
                "the value that the script sets, so rows may be read twice or not at all. Store the order of "
                "the rows as an array of numbers and shuffle that array, or give the class state_dict() and "
                "load_state_dict(state).",
                type(self._source).__name__,
                name,
                "it is too large" if attribute.arrays is not None else f"a {type(value).__name__} cannot be stored",
            )
        return True


def _can_be_held(attribute: Attribute) -> bool:
    if attribute.arrays is None:
        return False
    arrays = attribute.arrays.values()
    return sum(array.nbytes for array in arrays) <= MAX_SMALL_BYTES or all(array.ndim <= 1 for array in arrays)
