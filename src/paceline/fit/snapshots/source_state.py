"""What a `PyDataset` holds besides its data: the order of its rows, above all.

attribute                        in a snapshot
small, or of plain values        always
large, as the script made it     never: these are the data, and a rerun makes them again
large, changed since, one        from then on: an order of rows that is shuffled
  dimension
large, changed since, else       cannot be: a warning says that a rerun has it as the script made it
"""

import logging
from typing import Any

import numpy as np

from paceline.resilience.attributes import attributes_of, encode_captured, restore
from paceline.resilience.object_state import CannotHoldError, Tensors, encode
from paceline.store import checksum

_LOGGER = logging.getLogger("paceline")

MAX_SMALL_BYTES = 4 << 20
_SAMPLED_BYTES = 16 << 20
"""Of an array with several dimensions: a shuffle changes it everywhere."""


class SourceState:
    """Follows what of a data source changes.

    Args:
        source: The `PyDataset`, as the script hands it over; None: there is none to follow.
        is_chief: Whether this rank says what all ranks see.
    """

    def __init__(self, source: Any, is_chief: bool) -> None:
        self._source = source
        self._is_chief = is_chief
        self._made: dict[str, Any] = {}
        """By name, how large attributes looked at first."""
        self._changing: set[str] = set()
        """Those among them that have changed; for good, for one may come to look as it did at first."""
        self._said: set[str] = set()
        if source is not None:
            for name, value in attributes_of(source):
                arrays = _arrays_of(value)
                if _is_large(arrays):
                    self._made[name] = _look(value, arrays)

    def encode(self, tensors: Tensors, path: str) -> Any:
        """The state as it is now, whose arrays are added to `tensors`; None without a source."""
        return None if self._source is None else encode_captured(self._source, tensors, path, is_kept=self._is_kept)

    def put_back(self, state: Any) -> None:
        """Gives the source a decoded state."""
        if state is not None and self._source is not None:
            if state["hook"] is None:
                self._changing.update(state["state"])
            restore(self._source, state)

    def _is_kept(self, name: str, value: Any, arrays: Tensors | None) -> bool:
        if not _is_large(arrays):
            return True
        if name not in self._changing:
            look = _look(value, arrays)
            if look == self._made.setdefault(name, look):
                return False
            self._changing.add(name)
        if arrays is not None and all(array.ndim <= 1 for array in arrays.values()):
            return True
        if self._is_chief and name not in self._said:
            self._said.add(name)
            _LOGGER.warning(
                "%s.%s changes while the model is trained, and is no part of snapshots: %s. After a restart it is what "
                "the script makes it, so rows may come twice or never. Keep the order of the rows as an array of "
                "numbers and shuffle that, or give the class state_dict() and load_state_dict(state).",
                type(self._source).__name__,
                name,
                "it is too large" if arrays is not None else f"a {type(value).__name__} cannot be kept",
            )
        return False


def _arrays_of(value: Any) -> Tensors | None:
    arrays: Tensors = {}
    try:
        encode(value, arrays)
    except CannotHoldError:
        return None
    return arrays


def _is_large(arrays: Tensors | None) -> bool:
    """Also what cannot be held."""
    return arrays is None or sum(array.nbytes for array in arrays.values()) > MAX_SMALL_BYTES


def _look(value: Any, arrays: Tensors | None) -> Any:
    """Something that is another if `value` has changed."""
    if isinstance(value, np.memmap):
        return None  # a file: what is written to it stays there
    if arrays is not None:
        return [_checksum(array) for array in arrays.values()]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _checksum(value)
    return id(value)


def _checksum(array: Any) -> str:
    step = 1 if array.ndim <= 1 else -(-array.nbytes // _SAMPLED_BYTES)
    rows: Any = np.ascontiguousarray(array[::step] if array.ndim else array)
    read = checksum.begun()
    read.update(rows.view(np.uint8))
    return read.hexdigest()
