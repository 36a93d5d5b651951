"""The validation within a `fit`: the position in its data, on which the next validation depends.

step ─ step ─► reset ─► on_test_begin ─► batches ─► step ─ step
A source is as it was here ▲     ▲ and here, once Keras has told it that an epoch ends, after which it may shuffle.
"""

from typing import Any

import keras

from paceline.fit.snapshots.data_cursor import DataCursor
from paceline.fit.snapshots.source_state import SourceState
from paceline.fit.sources.generators import pass_over_unseen
from paceline.resilience.object_state import Frozen, Tensors, decode, frozen
from paceline.resilience.parts import Arrays, Part, Saved, Scope
from paceline.resilience.random_generators import capture_generators, restore_generators

VALIDATION = "validation"
"""What it is called in a snapshot."""

_BATCHES, _SOURCE = "batches", "source"
_GENERATORS = "generators"
"""Of the process, while a validation is running."""


class Validation:
    """Follows the data of the validations of one `fit`: all of them read the same one, each by an iterator of its own.

    Args:
        given: What `fit` was given as `validation_data`.
        is_chief: Whether this rank says what all ranks see.
    """

    def __init__(self, given: Any, is_chief: bool) -> None:
        self._given = given
        self._is_chief = is_chief
        self._data: DataCursor | None = None
        self._batches: tuple[int, ...] = ()
        """Read from each iterator that had been made before this process has begun one."""
        self._source = SourceState(given if isinstance(given, keras.utils.PyDataset) else None, is_chief)
        self._source_now: Frozen | None = None
        """Looked at once for all the snapshots before and in a validation; None: not yet."""
        self._due: tuple[Any, Any] | None = None
        """What the source, and the process's random generators, are given when the validation that goes on begins."""
        self._is_running = False

    def begins(self, data: DataCursor) -> None:
        """One is about to begin, over `data`, which have been told that an epoch ends."""
        if self._data is None:
            self._data = data
            data.advance(self._batches)
        if self._due is not None:
            state, generators = self._due
            self._source.put_back(state)
            restore_generators(generators)
            self._due = None
        self._is_running, self._source_now = True, None

    def is_over(self) -> None:
        """The one that had begun, if any, has ended."""
        if self._is_running and self._data is not None:
            self._data.validation_ends()
        self._is_running, self._source_now = False, None

    def pass_over(self) -> None:
        """None begins in this `fit`, which had ended: a generator is left where they had left it."""
        pass_over_unseen(self._given, self._batches, self._is_chief)

    def part(self) -> Part:
        """The position in the data of the validations, and whether one was running: that one begins again."""
        return Part(VALIDATION, Scope.RANK, self._captured, self._restore)

    def _captured(self, arrays: Arrays) -> Any:
        if self._source_now is None:
            found: Tensors = {}
            self._source_now = frozen(self._source.encode(found, f"{VALIDATION}/{_SOURCE}"), found)
        batches = self._batches if self._data is None else self._data.cursor.batches
        return {
            _BATCHES: [*batches],
            _SOURCE: arrays.frozen(self._source_now),
            _GENERATORS: arrays.value(capture_generators(), _GENERATORS) if self._is_running else None,
        }

    def _restore(self, saved: Saved) -> None:
        self._batches = tuple(saved.state[_BATCHES])
        source, generators = (decode(saved.state[name], saved.arrays) for name in (_SOURCE, _GENERATORS))
        if generators is not None:
            self._due = source, generators
        else:
            self._source.put_back(source)
