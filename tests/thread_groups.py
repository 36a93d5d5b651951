"""A group whose ranks are threads of one process: for tests of whatever talks, without starting processes."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.comm.group import Array, Group, Reduction, Request, combine, operation_of
from paceline.comm.solo import Mailbox
from paceline.errors import DesynchronizedError


class _Meeting:
    """The board that the threads of a group share: each writes its slot, all wait, all read."""

    def __init__(self, size: int, timeout_seconds: float) -> None:
        self.slots: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=timeout_seconds)
        self.timeout_seconds = timeout_seconds
        self.mailbox = Mailbox(timeout_seconds)


class ThreadGroup(Group):
    """One thread's place in a group of threads; make all of them with `thread_groups`."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self._rank = rank
        self._meeting = meeting

    @property
    def rank(self) -> int:
        """This thread's number."""
        return self._rank

    @property
    def size(self) -> int:
        """How many threads the group has."""
        return len(self._meeting.slots)

    def _exchange(self, call: str, value: Any) -> list[Any]:
        self._meeting.slots[self._rank] = (call, value)
        self._meeting.barrier.wait()
        slots = list(self._meeting.slots)
        self._meeting.barrier.wait()
        calls = {call for call, _ in slots}
        if len(calls) > 1:
            raise DesynchronizedError(
                f"ranks are in different collectives: {[call for call, _ in slots]} [collectives-differ]"
            )
        return [value for _, value in slots]

    def all_reduce(self, arrays: Sequence[Array], reduction: Reduction = Reduction.SUM) -> list[Array]:
        """See `Group.all_reduce`."""
        operation = operation_of(reduction, arrays)
        signature = [(array.shape, str(array.dtype)) for array in arrays]
        everyones = self._exchange(f"all_reduce {reduction.value} {signature}", [array.copy() for array in arrays])
        results = [np.empty_like(array) for array in arrays]
        for index, result in enumerate(results):
            combine([arrays[index] for arrays in everyones], operation, result)
        return results

    def all_gather(self, array: Array) -> list[Array]:
        """See `Group.all_gather`."""
        call = f"all_gather {array.shape[1:]} {array.dtype}"
        return [part.copy() for part in self._exchange(call, array.copy())]

    def broadcast(self, arrays: Sequence[Array]) -> list[Array]:
        """See `Group.broadcast`."""
        signature = [(array.shape, str(array.dtype)) for array in arrays]
        chiefs = self._exchange(f"broadcast {signature}", [array.copy() for array in arrays])[0]
        return [array.copy() for array in chiefs]

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self._exchange("barrier", None)

    def send(self, array: Array, to: int, tag: int = 0) -> Request[None]:
        """See `Group.send`."""
        self.check_message(to, tag)
        return self._meeting.mailbox.send((self._rank, to, tag), array)

    def recv(self, shape: Sequence[int], dtype: npt.DTypeLike, source: int, tag: int = 0) -> Request[Array]:
        """See `Group.recv`; `wait` raises `threading.BrokenBarrierError` after the group's timeout."""
        self.check_message(source, tag)
        return self._meeting.mailbox.recv((source, self._rank, tag), shape, dtype)

    def split(self, colour: int | None, key: int = 0) -> "ThreadGroup | None":
        """See `Group.split`."""
        everyones = self._exchange("split", (colour, key))
        mine = [(their_key, rank) for rank, (theirs, their_key) in enumerate(everyones) if theirs == colour]
        ranks = [] if colour is None else [rank for _, rank in sorted(mine)]
        is_first = ranks[:1] == [self._rank]
        made = _Meeting(len(ranks), self._meeting.timeout_seconds) if is_first else None
        meetings = self._exchange("split", made)
        return ThreadGroup(ranks.index(self._rank), meetings[ranks[0]]) if ranks else None

    def close(self) -> None:
        """See `Group.close`."""
        self._exchange("close", None)


def thread_groups(size: int, timeout_seconds: float = 120.0) -> list[ThreadGroup]:
    """One `Group` for each of `size` threads; a thread that waits longer than `timeout_seconds` raises."""
    meeting = _Meeting(size, timeout_seconds)
    return [ThreadGroup(rank, meeting) for rank in range(size)]
