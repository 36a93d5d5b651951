"""The position of a `fit` in its data, as a snapshot stores it, and the state of a source that has one of its own.

The position leads to the same rows in the same order.

    iterator 0          iterator 1          iterator 2
    [b b b b b b b]     (never read)        [b b b ^]      ^ here: batches = (7, 0, 3)

Whoever makes the same iterators over the same dataset, in this order, and takes as many batches from each stands at the
same position: a shuffle draws one seed for each iterator, read or not.
"""

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.data.fingerprint import random_operations
from paceline.data.order.iterator_state import (
    NoIteratorStateError,
    estimated_state_bytes,
    iterator_state,
    num_shuffles,
    restore_iterator,
)
from paceline.data.order.shuffles import shuffles_made_later
from paceline.data.own_rows.local_batches import WHOLE, form_of
from paceline.fit import compat
from paceline.fit.dataset_functions import ReadElsewhere
from paceline.resilience.attributes import Attribute, attributes_of, encode_captured, getter_of, restore
from paceline.resilience.baseline import mark_changed, take_baseline
from paceline.resilience.object_state import MAX_SMALL_BYTES, Frozen, Tensors, decode
from paceline.resilience.parts import Arrays, Part, Saved, Scope
from paceline.resilience.random_generators import tensorflow_is_seeded

_LOGGER = logging.getLogger("paceline")

DATA = "data"
"""The name of the part."""
GENERATORS, SOURCE = "generators", "source"


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a `fit` has read."""

    epoch: int = 0
    """From 0."""
    step: int = 0
    """Steps of the epoch that have been taken."""
    batches: tuple[int, ...] = ()
    """Taken from each iterator so far; the last one is being read."""
    steps_seen: int = 0
    """Steps that Keras has counted in the iterator that is being read."""

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Cursor":
        """What `to_json` was given."""
        return cls(**{**value, "batches": tuple(value["batches"])})


@dataclass(frozen=True, slots=True)
class Begin:
    """What the rows are drawn from, as it was before they were."""

    generators: Frozen
    """The process's random generators before the epoch in which the current iterator was first read, which may draw
    the order of the batches."""
    source: Frozen
    """What a `PyDataset` held before this epoch, hence before its `on_epoch_begin`; where the epoch is over, after
    it."""


@dataclass(frozen=True, slots=True)
class DataPosition:
    """Where in its data a run stood, and what it takes to come back there."""

    cursor: Cursor
    begin: Begin
    num_batches: int | None
    """As Keras knew it."""
    state: Any
    """Of the iterator; None: replay."""
    form: str
    """Of the dataset that the state is of: it fits no iterator over another form (`local_batches.form_of`)."""
    is_over: bool
    """Whether the epoch has no more steps: it is being validated, or a callback has ended it."""

    def captured(self, arrays: Arrays) -> Any:
        """For a snapshot."""
        return {
            "cursor": self.cursor.to_json(),
            GENERATORS: arrays.frozen(self.begin.generators),  # an order of many rows is copied once in an epoch
            SOURCE: arrays.frozen(self.begin.source),
            "num_batches": self.num_batches,
            "iterator": arrays.value(self.state, "iterator"),
            "form": self.form,
            "is_over": self.is_over,
        }

    @classmethod
    def saved(cls, saved: Saved) -> "DataPosition":
        """That in a snapshot; another number of ranks has no iterator like the one whose state was stored."""

        def frozen(name: str) -> Frozen:
            path = path_of(name)
            return Frozen(saved.state[name], {at: one for at, one in saved.arrays.items() if at.startswith(path)})

        return cls(
            cursor=Cursor.from_json(saved.state["cursor"]),
            begin=Begin(frozen(GENERATORS), frozen(SOURCE)),
            num_batches=saved.state["num_batches"],
            state=decode(saved.state["iterator"], saved.arrays) if saved.same_ranks else None,
            form=saved.state.get("form", WHOLE),  # older snapshots have none
            is_over=saved.state["is_over"],
        )


def path_of(name: str) -> str:
    """What the arrays of a `Begin` are called in a snapshot."""
    return f"{DATA}/{name}"


MAX_STATE_BYTES = 1 << 20
"""Iterators whose state is larger are replayed: a snapshot should not write shuffle buffers every minute."""


class SavedIterator:
    """Whether the iterators over one dataset have a state worth keeping, and that state.

    Args:
        epochs: The `TFEpochIterator`.
        is_chief: Whether this rank says what all ranks see.
    """

    def __init__(self, epochs: Any, is_chief: bool) -> None:
        self._epochs = epochs
        self._is_chief = is_chief
        adapter = epochs.data_adapter
        self._is_arrays = isinstance(adapter, compat.ArrayDataAdapter)
        is_python = isinstance(adapter, (compat.PyDatasetAdapter, compat.GeneratorDataAdapter))
        self._is_of_tensorflow = not is_python and epochs.reading is None
        self._may_have_state = self._is_of_tensorflow and not isinstance(epochs._distributed_dataset, ReadElsewhere)
        self._num_shuffles = 0

    @property
    def form(self) -> str:
        """Of the dataset."""
        return form_of(self._epochs._distributed_dataset)

    def made(self, fresh: Any) -> None:
        """An iterator has been made; says what of it cannot be kept.

        Later, even before the first step, a prefetch may have read some of its shuffles to their end.
        """
        if self._may_have_state and (state := self._read(fresh)) is not None:
            self._num_shuffles = num_shuffles(state) + len(shuffles_made_later(self._epochs._distributed_dataset))

    def warn_if_unseeded(self) -> None:
        """Says so if a shuffle could not be repeated."""
        if self._is_chief and self._is_of_tensorflow and not tensorflow_is_seeded():
            _LOGGER.warning(
                "TensorFlow has no seed: a shuffle without a seed cannot be repeated after a restart, so "
                "rows may be read twice or not at all. Put keras.utils.set_random_seed(1) at the top of the "
                "script, or start the script with `paceline run`, which sets a seed."
            )

    def state(self, live: Any) -> tuple[Any, str]:
        """That of `live` (None: it is to be read again up to its position), and the form of its dataset."""
        return self._state(live), self.form

    def _state(self, live: Any) -> Any:
        if not self._may_have_state or live is None:
            return None
        state = self._read(live) if self._seems_small else None
        if state is None or state.nbytes > MAX_STATE_BYTES:
            self._may_have_state = False
            return None
        number = num_shuffles(state)
        self._num_shuffles = max(self._num_shuffles, number)
        return state if number == self._num_shuffles else None  # at the end of an epoch; replayed

    def put_back(self, live: Any, state: Any) -> None:
        """Gives a new iterator a `state`."""
        restore_iterator(live, state)
        self._num_shuffles = num_shuffles(state)

    @functools.cached_property
    def _seems_small(self) -> bool:
        """Whether it is worth trying. Asks TensorFlow for sizes, hence once."""
        return estimated_state_bytes(self._epochs._distributed_dataset) <= MAX_STATE_BYTES

    def _read(self, iterator: Any) -> Any:
        try:
            return iterator_state(iterator, ignores_state_outside=self._is_arrays)
        except NoIteratorStateError:
            # The operation that it names need not draw: TensorFlow names the first call of a function, too.
            self._may_have_state = False
            if self._is_chief and (drawn := random_operations(self._epochs._distributed_dataset)):
                _LOGGER.warning(
                    "the input pipeline draws random numbers whose state a snapshot cannot store (%s). After a "
                    "restart each row is still trained on exactly once. But random augmentation in a parallel "
                    "map, or by Keras layers in any map, gets other random numbers. To repeat them exactly, use "
                    "tf.random.stateless_* with a seed from the data (e.g. enumerate()).",
                    ", ".join(drawn),
                )
            return None


_SAMPLED_BYTES = 16 << 20
"""Of an array with several dimensions: a shuffle changes it everywhere."""


class SourceState:
    """Follows what of a data source changes besides its data, above all the order of the rows of a `PyDataset`.

    attribute                           in a snapshot
    as the script hands it over         never: a rerun makes it again, and may set it otherwise (`baseline.py`)
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
            self._baseline = take_baseline(source, attributes, _SAMPLED_BYTES)
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
        return not self._warn_if_unheld(attribute) and self._baseline.has_changed(attribute)

    def _warn_if_unheld(self, attribute: Attribute) -> bool:
        """Whether a snapshot cannot hold it; says so if it changes once it is there: a file may be opened late."""
        if _can_be_held(attribute):
            return False
        name, value = attribute.name, attribute.value
        if name in self._said or not self._is_chief:
            return True
        look = self._baseline.look(attribute)
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
