"""The validation within a `fit`: what its data have come to, which the next one depends on."""

from collections.abc import Mapping
from typing import Any

import keras

from paceline.fit.snapshots.data_cursor import DataCursor
from paceline.fit.snapshots.source_state import SourceState
from paceline.resilience.object_state import Frozen, Tensors, decode, frozen

VALIDATION = "validation"
"""What it is called in a snapshot."""

_ITERATORS, _SOURCE = "iterators", "source"
_SOURCE_PATH = f"{VALIDATION}/{_SOURCE}"


class Validation:
    """Follows the data of the validations of one `fit`: all of them read the same one, each by an iterator of its own.

    Args:
        is_chief: Whether this rank says what all ranks see.
    """

    def __init__(self, is_chief: bool) -> None:
        self._is_chief = is_chief
        self._data: DataCursor | None = None
        self._source = SourceState(None, is_chief)
        self._before = Frozen({_ITERATORS: 0, _SOURCE: None}, {})
        """What a snapshot says, until there is a validation."""

    def begins(self, data: DataCursor) -> None:
        """One is about to begin, over `data`; the first one of this process goes on from where a snapshot was taken."""
        if self._data is not None:
            return
        self._data = data
        self._source = SourceState(data.python_source, self._is_chief)
        data.advance((0,) * self._before.encoded[_ITERATORS])
        self._source.put_back(decode(self._before.encoded[_SOURCE], self._before.tensors))

    def encode(self, tensors: Tensors) -> Any:
        """As JSON, and arrays, which are added to `tensors`."""
        if self._data is None:
            tensors.update(self._before.tensors)
            return self._before.encoded
        return {_ITERATORS: self._data.num_iterators, _SOURCE: self._source.encode(tensors, _SOURCE_PATH)}

    def go_on_from(self, own: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        """The next validation goes on from what a rank's part of a snapshot says."""
        arrays = {path: array for path, array in tensors.items() if path.startswith(_SOURCE_PATH)}
        self._before = frozen(own[VALIDATION], arrays)


def put_back_source(data: Any, own: Mapping[str, Any], tensors: Mapping[str, Any], *, is_chief: bool) -> None:
    """Gives the `validation_data` of a `fit` that is passed over what the snapshot of its end says."""
    if isinstance(data, keras.utils.PyDataset):
        SourceState(data, is_chief).put_back(decode(own[VALIDATION][_SOURCE], tensors))
