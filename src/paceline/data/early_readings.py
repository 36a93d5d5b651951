"""The next iterator over a dataset, made before its time: it fills its shuffle buffers while another one is drained.

An iterator depends on the draws for its shuffles, and on the rows. Where nothing else can come into it, an iterator
that is made early is the one that would be made later, if the same draws are next then:

    draws of a shuffle     1 [iterator 1 ─────────────────────]
    made early               2 [iterator 2: fills its buffer  ·  ·  ·  ·  ·
    set back               1                  the script, a validation, a snapshot: nothing has been drawn
    its time has come                                          1 ─► 2, and iterator 2 is read
      or: others have drawn                                    2, 3: iterator 2 is dropped, a new one draws 4

So nothing has to be undone if its time never comes. Two buffers are held for a while.
"""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.fingerprint import DRAWS
from paceline.data.freed_iterators import freed_in_thread
from paceline.data.iterator_state import estimated_state_bytes
from paceline.data.seed_draws import CannotBeCountedError, SeedDraws, draws_of
from paceline.data.staying_maps import has_effects
from paceline.data.worker_memory import memory_share, resident_bytes

_READS_ONCE = frozenset(
    [
        *("AssertCardinality", "Batch", "DenseToRagged", "Filter", "FixedLengthRecordDatasetV2", "FlatMap"),
        *("Interleave", "Map", "Options", "PaddedBatch", "ParallelBatch", "ParallelInterleave", "ParallelMap"),
        *("Prefetch", "Range", "Restructured", "Skip", "Take", "Tensor", "TensorSlice", "TextLineDatasetV2"),
        *("TFRecordDatasetV2", "Unbatch", "Zip"),
    ]
)
"""Kinds of stages of which an iterator makes one iterator over each source, before it gives its first element."""

_POLL_SECONDS = 0.001
_MOST_SECONDS = 10.0
"""It takes milliseconds: nothing is read before."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """The shuffles of a dataset whose buffers are filled anew by each iterator."""

    shuffles: tuple[Any, ...]
    """One for each generator of seeds."""
    draws: tuple[int, ...]
    """By generator, the numbers that an iterator has drawn by the time of its first element."""
    batches: int
    """How many batches of the dataset a buffer holds."""
    has_cache: bool
    """Whether rows below come from a cache, which the iterator before has to fill first."""


def buffers_of(script: Any, local: Any) -> Buffers | None:
    """Those of a dataset whose next iterator can be made early; None: it has none, or anything else may come into it.

    Args:
        script: The dataset as the script has made it.
        local: That of this rank's batches of it.
    """
    if not isinstance(script, tf.data.Dataset) or not isinstance(local, tf.data.Dataset):
        return None
    if local.options().experimental_warm_start is not None:  # the script's own decision
        return None
    if any(map(_may_differ, compat.with_sources(script))):
        return None
    found: Counter[int] = Counter()
    shuffles: dict[int, Any] = {}
    try:
        has_cache = _walk(local, found, shuffles)
    except _UnknownStageError:
        return None
    if not shuffles:
        return None
    return Buffers(tuple(shuffles.values()), tuple(found[key] for key in shuffles), _batches_in(script), has_cache)


class _UnknownStageError(Exception):
    """A stage that may make any number of iterators, at any time."""


def _may_differ(one: Any) -> bool:
    """Whether a function of a stage may return something else later: it draws, counts, or reads a state."""
    if any(tensor.dtype in (tf.resource, tf.variant) for tensor in compat.captured_by(one)):
        return True
    types = set().union(*compat.operations_of_functions(one))
    return any(map(DRAWS.match, types)) or has_effects(types - _SOURCES_OF_ROWS)


_SOURCES_OF_ROWS = frozenset(
    [
        *("FixedLengthRecordDataset", "FixedLengthRecordDatasetV2", "RangeDataset", "TensorDataset"),
        *("TensorSliceDataset", "TextLineDataset", "TFRecordDataset", "TFRecordDatasetV2"),
    ]
)
"""Operations that TensorFlow calls stateful, so that they are not called while it optimizes."""


def _walk(one: Any, found: Counter[int], shuffles: dict[int, Any]) -> bool:
    """Counts draws for an iterator over `one`; whether a cache in memory is below.

    Raises:
        _UnknownStageError: draws cannot be counted.
    """
    kind = compat.kind_of(one)
    if kind == "Shuffle" and compat.has_shared_seeds(one):
        if compat.is_reshuffled(one):
            key = id(compat.seeds_of(one))
            found[key] += 1
            shuffles[key] = one
    elif kind == "Cache" and not compat.writes_file(one):
        of_cache: dict[int, Any] = {}
        _walk(compat.inputs_of(one)[0], Counter(), of_cache)
        if of_cache:  # iterated once
            raise _UnknownStageError
        return True
    elif kind == "Variant" and int(one.cardinality()) == tf.data.INFINITE_CARDINALITY:
        return False  # the numbers of `Dataset.enumerate`
    elif kind not in _READS_ONCE:
        raise _UnknownStageError
    above_cache = [_walk(source, found, shuffles) for source in compat.inputs_of(one)]
    return any(above_cache)


def _batches_in(one: Any, rows: int = 1) -> int:
    """How many elements of the dataset above the largest buffer of a shuffle holds; `rows` of `one` are one of them."""
    largest = 0
    if (elements := compat.shuffle_buffer_of(one)) is not None:
        there = int(one.cardinality())
        largest = -(-(elements if there < 0 else min(elements, there)) // rows)
    options = compat.options_of_batch(one) if hasattr(one, "_batch_size") else None
    below = rows * (options["batch_size"] if options else 1)
    return max([largest, *(_batches_in(source, below) for source in compat.inputs_of(one))])


@dataclass(frozen=True, slots=True)
class _Early:
    """An iterator that has been made early."""

    iterator: Any
    before: list[int]
    """By generator, how many numbers have been drawn when its time comes, if nobody else draws."""
    after: list[int]
    """How many, with its own."""


class EarlyReading:
    """Makes the next iterators over a dataset early; from one thread.

    Args:
        dataset: It, of this rank's batches.
        buffers: Its shuffles.
        bytes_before: What the process held before anything was read.
    """

    def __init__(self, dataset: Any, buffers: Buffers, bytes_before: int) -> None:
        options = tf.data.Options()
        options.experimental_warm_start = True
        self._dataset = dataset
        self._filled_at_once = dataset.with_options(options)
        self._buffers = buffers
        self._bytes_before = bytes_before
        self._draws: list[SeedDraws] | None = None
        self._made: list[_Early] = []

    @property
    def num_made(self) -> int:
        """Iterators whose time has not come."""
        return len(self._made)

    def begin(self, num_unread: int) -> bool:
        """Makes the next iterators: some that nobody will read, then one that begins to read; whether that could be.

        As if nothing had happened, for all others. At least one iterator has been read before.
        """
        held = resident_bytes()
        # What the process has grown by holds a buffer, whatever the rows are.
        grows_by = max(held - self._bytes_before, estimated_state_bytes(self._dataset))
        if held + grows_by > memory_share():
            return False
        if self._draws is None:
            try:
                self._draws = [draws_of(shuffle) for shuffle in self._buffers.shuffles]
            except CannotBeCountedError:
                return False
        first = before = self._numbers()
        for _ in range(num_unread):
            unread = freed_in_thread(iter(self._dataset))
            self._made.append(_Early(unread, before, before := self._numbers()))
        after = [number + more for number, more in zip(before, self._buffers.draws, strict=True)]
        iterator = iter(self._filled_at_once)
        if has_drawn := self._wait_for(after):
            self._made.append(_Early(freed_in_thread(iterator), before, after))
        else:
            self.drop()
        del iterator  # where it has not drawn, it will not draw any more
        self._set(first)
        return has_drawn

    def take(self) -> Any:
        """The next iterator, whose time has come; None: others have drawn since, so those made early are dropped."""
        if self._numbers() != self._made[0].before:
            self.drop()
            return None
        early = self._made.pop(0)
        self._set(early.after)
        return early.iterator

    def drop(self) -> None:
        """The time of those made early will not come."""
        self._made = []

    def _wait_for(self, numbers: list[int]) -> bool:
        # A shuffle below another one draws when that begins to be filled, in another thread.
        until = time.monotonic() + _MOST_SECONDS
        while (found := self._numbers()) != numbers and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        return found == numbers

    def _numbers(self) -> list[int]:
        assert self._draws is not None
        return [one.number for one in self._draws]

    def _set(self, numbers: list[int]) -> None:
        assert self._draws is not None
        for one, number in zip(self._draws, numbers, strict=True):
            one.number = number
