"""A bounded ring of records in memory that processes of one host share: one process writes, each reader reads all.

    number of record     0   1   2   3 │ 4   5        the ring has 4 slots; record 4 takes the slot of record 0
    writer                             │     ^        waits for the slowest reader before it takes a slot again
    reader 0                     ^     │              has read records 0, 1, and reads 2
    reader 1                         ^ │

The memory is that of files without names (`memfd_create`), which the others open as ``/proc/PID/fd/FD``. The kernel
frees it with the last process that has it open, however that one ends, so a kill leaves nothing in ``/dev/shm``; and it
is not limited by the size of ``/dev/shm``, which is 64 MB in many containers. A slot grows with its records.

Nobody can hang in here for ever unless asked to: each wait is given a function that says when it is over.
"""

import hashlib
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.comm.group import Group, Reduction

NUM_SLOTS = 4
"""Records that may be written ahead of the slowest reader."""

_LINE_WORDS = 8
"""A cache line: readers do not write where others do."""
_PAGE_BYTES = 4096
_ALIGNMENT_BYTES = 64
_WRITTEN = 0
_CAPACITY, _HEAD_BYTES, _NUM_BUFFERS, _TAG = 0, 1, 2, 3
_SLOTS = _LINE_WORDS
_READERS = _SLOTS + NUM_SLOTS * _LINE_WORDS
_SHORTEST_NAP_SECONDS, _LONGEST_NAP_SECONDS = 20e-6, 2e-3
_MAP_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)  # pages are there before they are written


@dataclass(frozen=True, slots=True)
class Record:
    """What lies in a slot until its reader calls `done`."""

    tag: int
    """As it was written."""
    head: bytes
    """A copy."""
    buffers: Sequence[memoryview]
    """In the ring's memory."""


class RingMemory:
    """The files of one ring, mapped; made by the writer (`create`), opened by the others.

    Args:
        descriptors: Of the file with the counts, then of each slot's.
    """

    def __init__(self, descriptors: Sequence[int]) -> None:
        self.descriptors = tuple(descriptors)
        control, *self._slots = self.descriptors
        self.words = memoryview(mmap.mmap(control, 0, _MAP_FLAGS)).cast("q")
        self._mapped: list[Any] = [None] * NUM_SLOTS

    @classmethod
    def create(cls, num_readers: int) -> "RingMemory":
        """A new ring.

        Raises:
            OSError: this system has no such files.
            AttributeError: the same.
        """
        descriptors = [os.memfd_create(f"paceline-ring-{number}") for number in range(1 + NUM_SLOTS)]
        os.ftruncate(descriptors[0], -(-8 * (_READERS + num_readers * _LINE_WORDS) // _PAGE_BYTES) * _PAGE_BYTES)
        return cls(descriptors)

    @classmethod
    def open(cls, process_id: int, descriptors: Sequence[int]) -> "RingMemory":
        """That of another process.

        Raises:
            OSError: this process sees no such file, or may not open it.
        """
        return cls([os.open(f"/proc/{process_id}/fd/{one}", os.O_RDWR | os.O_CLOEXEC) for one in descriptors])

    def slot(self, number: int, *, least_bytes: int = 0) -> memoryview:
        """The memory of a slot, mapped again if it has grown; the writer asks for room."""
        at = _SLOTS + number * _LINE_WORDS
        if least_bytes > self.words[at + _CAPACITY]:
            capacity = -(-(least_bytes + least_bytes // 4) // _PAGE_BYTES) * _PAGE_BYTES
            os.ftruncate(self._slots[number], capacity)
            self.words[at + _CAPACITY] = capacity
        mapped, capacity = self._mapped[number], self.words[at + _CAPACITY]
        if mapped is None or len(mapped) != capacity:
            mapped = self._mapped[number] = memoryview(mmap.mmap(self._slots[number], capacity, _MAP_FLAGS))
        return mapped  # type: ignore[no-any-return]

    def __del__(self) -> None:
        for one in self.descriptors:
            os.close(one)


class RingWriter:
    """Writes records; one thread at a time.

    Args:
        memory: From `RingMemory.create`.
        num_readers: As there.
    """

    def __init__(self, memory: RingMemory, num_readers: int) -> None:
        self._memory = memory
        self._reads = [_READERS + reader * _LINE_WORDS for reader in range(num_readers)]

    def write(self, tag: int, head: bytes, buffers: Sequence[Any], is_over: Callable[[], bool]) -> bool:
        """Copies a record into the ring, once there is a free slot.

        Args:
            tag: Readers find it without looking at the rest.
            head: Any bytes.
            buffers: Contiguous memory, copied once.
            is_over: Asked while there is no free slot.

        Returns:
            Whether the record was written; False: it was over.
        """
        words, number = self._memory.words, self._memory.words[_WRITTEN]
        if not _wait(lambda: number - min(words[at] for at in self._reads) < NUM_SLOTS, is_over):
            return False
        views = [memoryview(one).cast("B") for one in buffers]
        begins, end = [], 16 * len(views) + len(head)
        for view in views:
            begins.append(-(-end // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
            end = begins[-1] + len(view)
        slot = number % NUM_SLOTS
        memory = self._memory.slot(slot, least_bytes=max(end, 1))
        table = np.frombuffer(memory, np.int64, 2 * len(views))
        table[:] = [word for begin, view in zip(begins, views, strict=True) for word in (begin, len(view))]
        memory[16 * len(views) : 16 * len(views) + len(head)] = head
        for begin, view in zip(begins, views, strict=True):
            # NumPy lets other threads run while it copies.
            np.copyto(np.frombuffer(memory, np.uint8, len(view), begin), np.frombuffer(view, np.uint8))
        at = _SLOTS + slot * _LINE_WORDS
        words[at + _HEAD_BYTES], words[at + _NUM_BUFFERS], words[at + _TAG] = len(head), len(views), tag
        _fence()
        words[_WRITTEN] = number + 1
        return True


class RingReader:
    """One reader's end; one thread at a time.

    Args:
        memory: The writer's own, or one that was opened.
        reader: This one's number.
    """

    def __init__(self, memory: RingMemory, reader: int) -> None:
        self._memory = memory
        self._own = _READERS + reader * _LINE_WORDS

    def next(self, is_over: Callable[[], bool]) -> Record | None:
        """The record after the last one that is `done`. Blocks until it is written; None: it is over before."""
        words, number = self._memory.words, self._memory.words[self._own]
        if not _wait(lambda: words[_WRITTEN] > number, is_over):
            return None
        slot = number % NUM_SLOTS
        at = _SLOTS + slot * _LINE_WORDS
        memory, count, size = self._memory.slot(slot), words[at + _NUM_BUFFERS], words[at + _HEAD_BYTES]
        table = np.frombuffer(memory, np.int64, 2 * count).reshape(-1, 2).tolist()
        head = bytes(memory[16 * count : 16 * count + size])
        return Record(words[at + _TAG], head, [memory[begin : begin + length] for begin, length in table])

    def done(self) -> None:
        """The writer may take the slot of the record that `next` has returned: what is needed of it was copied."""
        _fence()
        self._memory.words[self._own] += 1


_barrier = threading.Lock()


def _fence() -> None:
    # Taking a lock orders the loads and stores behind it, releasing it those before; the second turn orders the first
    # one's stores before its own loads. x86 would need none of this for what is done here.
    for _ in range(2):
        with _barrier:
            pass


def _wait(is_ready: Callable[[], bool], is_over: Callable[[], bool]) -> bool:
    nap = _SHORTEST_NAP_SECONDS
    while not is_ready():
        if is_over():
            return False
        time.sleep(nap)
        nap = min(1.5 * nap, _LONGEST_NAP_SECONDS)
    _fence()
    return True


@dataclass(frozen=True, slots=True)
class HostRings:
    """The rings of the ranks on this host."""

    writer: RingWriter | None
    """This rank's own; None: it only reads."""
    readers: Sequence[RingReader]
    """This rank's end of each ring, in the order of the ranks that write."""
    number: int
    """This rank's among the ranks of its host."""
    size: int
    """How many those are."""


def ranks_of_this_host(group: Group) -> list[int]:
    """The ranks of `group` with the same kernel, user and space of processes as this one. Collective."""
    keys = np.concatenate(group.all_gather(np.array([_host_key()], np.int64)))
    return [int(rank) for rank in np.flatnonzero(keys[: group.num_present] == keys[group.rank])]


def form_rings(group: Group, ranks: Sequence[int], num_writers: int) -> HostRings | None:
    """Makes the rings of each host. Collective over `group`.

    Args:
        group: The ranks of all hosts.
        ranks: Those of this host, from `ranks_of_this_host`.
        num_writers: How many of them write, the first ones; at most all do.

    Returns:
        None on all ranks, if any of them cannot open a ring of its host.
    """
    number, num_readers = ranks.index(group.rank), len(ranks)
    own: RingMemory | None = None
    place = np.full([1, 2 + NUM_SLOTS], -1, np.int64)
    if number < num_writers:
        try:
            own = RingMemory.create(num_readers)
            place[0] = os.getpid(), *own.descriptors
        except (OSError, AttributeError):
            own = None
    places = np.concatenate(group.all_gather(place))
    memories: list[RingMemory] = []
    try:
        for rank in ranks[:num_writers]:
            process_id, *descriptors = places[rank].tolist()
            mine = own if rank == group.rank else None
            memories.append(mine if mine is not None else RingMemory.open(process_id, descriptors))
    except (OSError, ValueError):
        memories = []
    [all_can] = group.all_reduce([np.array(len(memories) == min(num_writers, num_readers))], Reduction.MIN)
    if not all_can:
        return None
    writer = None if own is None else RingWriter(own, num_readers)
    return HostRings(writer, [RingReader(memory, number) for memory in memories], number, num_readers)


def _host_key() -> int:
    parts = [str(os.getuid())]
    try:
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/pid").readlink())]
    except OSError:  # no such system: each rank is a host of its own
        parts.append(os.urandom(16).hex())
    return int.from_bytes(hashlib.blake2b("\n".join(parts).encode(), digest_size=7).digest(), "little")
