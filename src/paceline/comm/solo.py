"""A world of one, so that nobody must ask whether there are peers, and messages that stay in this process."""

import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paceline.comm.group import Array, Group, Reduction, Request, check_defined, check_message_bytes

Key = tuple[int, int, int]
"""Sender, receiver, tag."""


class Mailbox:
    """The messages of a group whose ranks share this process's memory.

    Args:
        timeout_seconds: How long a receiver waits for a message before it raises.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._arrival = threading.Condition()
        self._num_sent: Counter[Key] = Counter()
        self._num_asked: Counter[Key] = Counter()
        self._unread: dict[tuple[Key, int], Array] = {}

    def send(self, key: Key, array: Array) -> Request[None]:
        """Puts a copy into the box."""
        with self._arrival:
            self._unread[key, self._num_sent[key]] = array.copy()
            self._num_sent[key] += 1
            self._arrival.notify_all()
        return Sent()

    def recv(self, key: Key, shape: Sequence[int], dtype: npt.DTypeLike) -> Request[Array]:
        """The next message with this key that nobody has asked for."""
        with self._arrival:
            number = self._num_asked[key]
            self._num_asked[key] += 1
        return _Letter(self, key, number, np.empty(shape, dtype))

    def has(self, key: Key, number: int) -> bool:
        """Whether this message was sent."""
        return self._num_sent[key] > number

    def take(self, key: Key, number: int) -> Array:
        """This message, once it was sent."""
        with self._arrival:
            if not self._arrival.wait_for(lambda: self.has(key, number), self._timeout_seconds):
                raise threading.BrokenBarrierError(f"no message from rank {key[0]} with tag {key[2]}")
            return self._unread.pop((key, number))


class Sent(Request[None]):
    """A message that needs its array no longer."""

    def is_done(self) -> bool:
        """Always."""
        return True

    def wait(self) -> None:
        """Returns at once."""


class _Letter(Request[Array]):
    def __init__(self, box: Mailbox, key: Key, number: int, array: Array) -> None:
        self._box, self._key, self._number, self._array = box, key, number, array

    def is_done(self) -> bool:
        return self._box.has(self._key, self._number)

    def wait(self) -> Array:
        sent = self._box.take(self._key, self._number)
        check_message_bytes(sent.nbytes, self._array, self._key[0], self._key[2])
        return sent.reshape(-1).view(np.uint8).view(self._array.dtype).reshape(self._array.shape)


class SoloGroup(Group):
    """The group of a process that trains alone: every result is a copy of the argument, every message its own."""

    def __init__(self) -> None:
        self._mailbox = Mailbox(timeout_seconds=0.0)  # nobody else will send what this rank has not

    @property
    def rank(self) -> int:
        """Always 0."""
        return 0

    @property
    def size(self) -> int:
        """Always 1."""
        return 1

    def all_reduce(self, arrays: Sequence[Array], reduction: Reduction = Reduction.SUM) -> list[Array]:
        """Copies of `arrays`."""
        check_defined(reduction, arrays)
        return [array.copy() for array in arrays]

    def all_gather(self, array: Array) -> list[Array]:
        """A copy of `array` as the only entry."""
        return [array.copy()]

    def broadcast(self, arrays: Sequence[Array]) -> list[Array]:
        """Copies of `arrays`."""
        return [array.copy() for array in arrays]

    def barrier(self) -> None:
        """Returns at once."""

    def send(self, array: Array, to: int, tag: int = 0) -> Request[None]:
        """See `Group.send`."""
        self.check_message(to, tag)
        return self._mailbox.send((0, 0, tag), array)

    def recv(self, shape: Sequence[int], dtype: npt.DTypeLike, source: int, tag: int = 0) -> Request[Array]:
        """See `Group.recv`; `wait` raises `threading.BrokenBarrierError` if nothing was sent."""
        self.check_message(source, tag)
        return self._mailbox.recv((0, 0, tag), shape, dtype)

    def split(self, colour: int | None, key: int = 0) -> "SoloGroup | None":
        """Another group of one, or None."""
        del key
        return None if colour is None else SoloGroup()

    def close(self) -> None:
        """Nothing to leave."""
