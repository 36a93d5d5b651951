"""The group that everybody holds: counts the collectives and messages of the group inside it.

The counts of all ranks tell those that wait from those waited for. A new collective of `Group` is counted here, too.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from paceline.comm.group import Array, Group, Reduction, Request

_Received = TypeVar("_Received")


class CountedGroup(Group):
    """A group that is formed when it is first needed, and says from another thread where this rank is in it.

    Args:
        name: The same on all its ranks; no other group of this process has it.
        rank: This rank's number in it, known before it is formed.
        members: The ranks in the job of its ranks, in their order.
        form: Forms it, called once. Collective.
        groups: Every group of this process that has been formed; this one enters itself.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        members: Sequence[int],
        form: Callable[[], Group],
        groups: dict[str, "CountedGroup"],
    ) -> None:
        self.name = name
        self.num_entered = 0
        """How many collectives this rank has entered; the same number is the same collective on all ranks."""
        self.inside = ""
        """The one that it is in, such as ``all_reduce``; empty: in none."""
        self.message: tuple[str, int] | None = None
        """The message that a thread of this rank waits for, and the rank in the job of its other end."""
        self._rank, self._members = rank, members
        self._form, self._groups = form, groups
        self._forming = threading.Lock()
        self._inner: Group | None = None
        self._num_splits = 0

    @property
    def inner(self) -> Group:
        """Who does the work. The first use forms the group: collective."""
        if self._inner is None:
            with self._forming:
                if self._inner is None:
                    self._inner = self._form()
                    self._groups[self.name] = self
        return self._inner

    @property
    def rank(self) -> int:
        """See `Group.rank`."""
        return self._rank

    @property
    def size(self) -> int:
        """See `Group.size`."""
        return len(self._members)

    @property
    def num_present(self) -> int:
        """See `Group.num_present`. The first use forms the group."""
        return self.inner.num_present

    # A context manager would be shorter, and would cost each call of a collective four times as much.

    def _enter(self, call: str) -> Group:
        inner = self._inner or self.inner
        self.num_entered += 1
        self.inside = call
        return inner

    def all_reduce(self, arrays: Sequence[Array], reduction: Reduction = Reduction.SUM) -> list[Array]:
        """See `Group.all_reduce`."""
        try:
            return self._enter("all_reduce").all_reduce(arrays, reduction)
        finally:
            self.inside = ""

    def all_gather(self, array: Array) -> list[Array]:
        """See `Group.all_gather`."""
        try:
            return self._enter("all_gather").all_gather(array)
        finally:
            self.inside = ""

    def broadcast(self, arrays: Sequence[Array]) -> list[Array]:
        """See `Group.broadcast`."""
        try:
            return self._enter("broadcast").broadcast(arrays)
        finally:
            self.inside = ""

    def barrier(self) -> None:
        """See `Group.barrier`."""
        try:
            self._enter("barrier").barrier()
        finally:
            self.inside = ""

    def send(self, array: Array, to: int, tag: int = 0) -> Request[None]:
        """See `Group.send`."""
        return self._counted(self.inner.send(array, to, tag), f"send with tag {tag}", to)

    def recv(self, shape: Sequence[int], dtype: npt.DTypeLike, source: int, tag: int = 0) -> Request[Array]:
        """See `Group.recv`."""
        return self._counted(self.inner.recv(shape, dtype, source, tag), f"recv with tag {tag}", source)

    def _counted(self, request: Request[_Received], call: str, peer: int) -> Request[_Received]:
        return _CountedRequest(self, request, call, self._members[peer])

    def split(self, colour: int | None, key: int = 0) -> "CountedGroup | None":
        """See `Group.split`."""
        try:
            part = self._enter("split").split(colour, key)
        finally:
            self.inside = ""
        self._num_splits += 1
        if part is None:
            return None
        members = [self._members[int(rank)] for [rank] in part.all_gather(np.array([self._rank]))]
        name = f"{self.name}/{self._num_splits}.{colour}"
        counted = CountedGroup(name, part.rank, members, lambda: part, self._groups)
        assert counted.inner is part
        return counted

    def close(self) -> None:
        """See `Group.close`."""
        try:
            self._enter("close").close()
        finally:
            self.inside = ""
        self._groups.pop(self.name, None)


class _CountedRequest(Request[_Received]):
    """A message of a group that can say from another thread that this rank waits for it."""

    def __init__(self, group: CountedGroup, request: Request[_Received], call: str, peer: int) -> None:
        self._group, self._request, self._call, self._peer = group, request, call, peer

    def is_done(self) -> bool:
        return self._request.is_done()

    def wait(self) -> _Received:
        group = self._group
        group.message = self._call, self._peer
        try:
            return self._request.wait()
        finally:
            group.message = None
