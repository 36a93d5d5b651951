"""Items of a Python source that some ranks of a host make, and all its ranks take their rows of.

    one rank makes all       rank 0: item 0 · item 1 · item 2 …  ─► ring ─► rows 0-1 on rank 0, rows 2-3 on rank 1
    each makes every n-th    rank 0: item 0 · item 2 …  ─► ring 0 ┐
                             rank 1: item 1 · item 3 …  ─► ring 1 ┴► item 0, 1, 2, 3 … of both, in turn, on each rank

A maker works ahead in a thread, as far as its ring has room (`comm/memory_ring.py`). Items, the end of the data and
exceptions all take the same way, so every rank meets them behind the same item. Iterators over the data are numbered
alike on all ranks; what is left in a ring of an iterator that was broken off is passed over.
"""

import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from paceline.comm.memory_ring import HostRings
from paceline.data.batch_rows import differing_rows, named_components
from paceline.data.fingerprint import FingerprintLog, Part, parts_of
from paceline.data.own_rows.division import AnyDivision
from paceline.data.own_rows.share_table import ShareTable, cut_of

_ITEM, _END, _FAULT = range(3)
_GRACE_SECONDS = 1.0
"""A job that the exception ends has ended by then, and has shown it as the rank where it was raised tells it."""
_COMPARED_ITERATORS = 2
"""Before the first `on_epoch_end`, and behind it: a source that shuffles alike there goes on to do so."""


class ItemRings:
    """What one rank makes and takes of the items of a source; an iterator is read by one thread.

    Usage:
        items.begin()                        # on all ranks, for each new iterator
        for batch in items.batches(log): …   # TensorFlow's thread: this rank's rows of each item
        items.leave()                        # nobody asks any more

    Args:
        rings: Of this host.
        spec: The structure and dtypes of items, all dense and with rows.
        rank: This rank, as it takes rows.
        size: Number of ranks that share the rows of an item.
        make: Called where an iterator is first read: the items that this rank makes; none if it does not write.
        first_item: Makes the first item of the iterator, whoever else makes it, so that ranks which make other items
            can be compared; None: nothing to compare.
    """

    def __init__(
        self,
        rings: HostRings,
        spec: Any,
        rank: int,
        size: int,
        make: Callable[[], Iterator[Any]],
        first_item: Callable[[], Any] | None = None,
    ) -> None:
        self._rings = rings
        self._spec = spec
        self._rank, self._size = rank, size
        self._make = make
        self._first_item = first_item
        self._num_read = 0
        """Iterators that have been read."""
        self._number = 0
        """Of the newest iterator; 0: nobody reads."""
        self._newest = 0
        self._turns = ShortSwitchInterval()
        self._making, self._taking = threading.Lock(), threading.Lock()
        self._own_fault: Exception | None = None
        """That this rank's source has raised, as it was raised."""
        self._fault: Exception | None = None
        """That of the item where the newest iterator ends."""
        self._is_own_fault = False

    def begin(self) -> None:
        """A new iterator is about to be made; those before it are over."""
        self._newest += 1
        self._number, self._fault = self._newest, None
        if self._rings.writer is not None:
            self._turns.begin()

    def leave(self) -> None:
        """Nobody reads any more: threads that wait go on, and end."""
        self._number = 0
        self._turns.end()

    end = leave

    def raise_fault(self) -> None:
        """The newest iterator has no more batches: if an item has raised an exception, it is raised on all ranks.

        Raises:
            Exception: that of the source.
        """
        fault, self._fault = self._fault, None
        if fault is None:
            return
        if not self._is_own_fault:
            time.sleep(_GRACE_SECONDS)
        raise fault from None

    def batches(self, log: FingerprintLog | None, table: ShareTable | None = None) -> Iterator[Any]:
        """This rank's rows of each item of the newest iterator, up to one that raises: see `raise_fault`."""
        number = self._number
        self._num_read += 1
        own_items = self._make()
        writer = self._rings.writer
        if writer is not None:
            make = threading.Thread(target=self._write, args=(number, own_items, log), daemon=True)
            make.name = "paceline makes items"
            make.start()
        for position in self._positions(number):
            kind, leaves, parts = self._take(number, position, table)
            if kind == _END:
                return
            if kind == _FAULT:  # TensorFlow would print it, again and again, and hand on its text only
                is_own = self._rings.writer is not None and position % len(self._rings.readers) == self._rings.number
                self._fault, self._is_own_fault = self._own_fault if is_own else leaves, is_own
                return
            if parts and log is not None:
                log.take(position, parts if position else self._parts_of_first(parts))
            yield tf.nest.pack_sequence_as(self._spec, leaves)

    def _parts_of_first(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Those of the first item as this rank makes it, until it was seen to go on from one epoch to the next."""
        is_due = self._first_item is not None and self._num_read <= _COMPARED_ITERATORS and self._rings.number
        return parts_of(self._leaves(self._first_item())) if self._first_item is not None and is_due else parts

    def _positions(self, number: int) -> Iterator[int]:
        position = 0
        while self._number == number:
            yield position
            position += 1

    def _take(self, number: int, position: int, table: ShareTable | None) -> tuple[int, Any, Sequence[Part]]:
        ring = self._rings.readers[position % len(self._rings.readers)]
        with self._taking:
            while True:
                record = ring.next(lambda: self._number != number)
                if record is None or record.tag > number:
                    return _END, None, ()
                if record.tag == number:
                    break
                ring.done()
            kind, content, parts = pickle.loads(record.head, buffers=record.buffers)
            if kind == _ITEM:
                cut = cut_of(table, position, self._rank, self._size)
                content = [leaf[slice(*cut(len(leaf)))].copy() for leaf in content]
            del record
            ring.done()
            return kind, content, parts

    def _write(self, number: int, items: Iterator[Any], log: FingerprintLog | None) -> None:
        assert self._rings.writer is not None
        size = len(self._rings.readers)
        position = self._rings.number
        with self._making:  # the one before may still be in the middle of an item
            try:
                for item in items:
                    if self._number != number:
                        return
                    leaves = self._leaves(item)
                    is_noted = log is not None and log.is_compared(position)
                    if not self._written(number, _ITEM, leaves, parts_of(leaves) if is_noted else ()):
                        return
                    position += size
            except Exception as fault:
                self._own_fault = fault
                self._written(number, _FAULT, sendable(fault), ())
            else:
                self._written(number, _END, None, ())

    def _written(self, number: int, kind: int, content: Any, parts: Sequence[Part]) -> bool:
        assert self._rings.writer is not None
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps((kind, content, tuple(parts)), protocol=5, buffer_callback=buffers.append)
        return self._rings.writer.write(number, head, [one.raw() for one in buffers], lambda: self._number != number)

    def _leaves(self, item: Any) -> list[Any]:
        tf.nest.assert_same_structure(self._spec, item, check_types=False)
        leaves = [np.asarray(leaf) for leaf in tf.nest.flatten(item)]
        named = named_components(tf.nest.pack_sequence_as(self._spec, leaves))
        if told := differing_rows([(name, leaf.shape) for name, leaf in named]):
            raise ValueError(told)
        return leaves


class ShortSwitchInterval:
    """From `begin` to `end` of any such object, the threads of this process take short turns.

    A thread of Python that waits for the interpreter gets it after 5 ms, if the one that has it does not wait for
    anything itself. A step waits for the interpreter several times (callbacks, the collectives of a graph). So a
    `__getitem__` that computes in Python would hold each step up by 20 ms and more, and those of other ranks with it,
    one rank after another.
    """

    _SECONDS = 0.5e-3
    """A turn more costs some microseconds: below 2 %."""
    _lock = threading.Lock()
    _users: ClassVar[set["ShortSwitchInterval"]] = set()
    _seconds_before = 0.0

    def begin(self) -> None:
        """Without effect if it has begun."""
        with self._lock:
            if not self._users:
                ShortSwitchInterval._seconds_before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._seconds_before, self._SECONDS))
            self._users.add(self)

    def end(self) -> None:
        """Without effect if it has not begun."""
        with self._lock:
            if self in self._users:
                self._users.remove(self)
                if not self._users:
                    sys.setswitchinterval(self._seconds_before)


def sendable(fault: Exception) -> Exception:
    """`fault` as another process can raise it, with its traceback as a note."""
    text = "".join(traceback.format_exception(fault))
    try:
        sent: Exception = pickle.loads(pickle.dumps(fault))
    except Exception:
        sent = RuntimeError(f"{type(fault).__name__}: {fault}")
    sent.add_note(f"\nIt was raised in another process of this host:\n\n{text}")
    return sent


def is_dense_with_rows(spec: Any) -> bool:
    """Whether all components of an item are dense tensors that have rows."""
    return all(
        isinstance(leaf, tf.TensorSpec) and leaf.shape.rank is not None and leaf.shape.rank > 0
        for leaf in tf.nest.flatten(spec)
    )


@dataclass(frozen=True, slots=True)
class RingDivision(AnyDivision):
    """Rows are chosen as they are taken out of a ring."""

    items: ItemRings
    spec: Any
    work: str
    stays = form = ""

    def batches(
        self, dataset: Any, rank: int, size: int, log: FingerprintLog | None, table: ShareTable | None = None
    ) -> Any:
        """See `AnyDivision`; the rings know the rank."""
        del rank, size
        own = tf.data.Dataset.from_generator(lambda: self.items.batches(log, table), output_signature=self.spec)
        return own.with_options(dataset.options())
