"""The groups of a process: all ranks, and those that lie in one line with it along an *axis*.

The ranks lie on named axes, as the cells of a table do. An axis has one group for each line of ranks along it:

    arrange({"stage": 2, "data": 3})       data ─►          axis "data" of rank 4:  ranks 3, 4, 5
                                    stage  0  1  2          axis "stage" of rank 4: ranks 1, 4
                                      ▼    3  4  5

Replicas of one model are on the axis `data`, which has all ranks unless somebody arranges them otherwise. Whoever sums
gradients or divides rows takes that axis, never the world.

All groups are formed in one moment, when a collective of any of them is first called: to form an axis is a collective
of all ranks, and who uses one axis first need not know what the others do.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from paceline.rendezvous.channel import ALL_RANKS, Whereabouts

if TYPE_CHECKING:
    from paceline.comm.counted_group import CountedGroup
    from paceline.comm.group import Group

DATA = "data"
"""The axis of the replicas of one model."""


class Axes:
    """The groups of one process of a job.

    Args:
        rank: Its rank in the job.
        size: Number of ranks of the job.
        connect: Forms the group of all ranks. Collective; called once.
        connected: Called when all groups stand.
    """

    def __init__(self, rank: int, size: int, connect: "Callable[[], Group]", connected: Callable[[], None]) -> None:
        self._rank, self._size = rank, size
        self._connect, self._connected = connect, connected
        self._sizes: dict[str, int] = {DATA: size}
        self._lock = threading.Lock()
        self._groups: dict[str, CountedGroup] = {}
        self._parts: dict[str, Group] = {}
        self._formed: dict[str, CountedGroup] = {}

    @property
    def formed(self) -> bool:
        """Whether the groups stand."""
        return bool(self._formed)

    def all_ranks(self) -> "CountedGroup":
        """The group of all ranks."""
        return self._group(ALL_RANKS, self._rank, range(self._size), self._form)

    def along(self, name: str) -> "CountedGroup":
        """The group of the ranks in one line with this one, in the order of their ranks.

        Its rank and size are known at once; it is formed with that of all ranks.

        Raises:
            KeyError: there is no such axis.
        """
        if self._sizes[name] == self._size:
            return self.all_ranks()
        place, first = self._line(name)

        def form() -> "Group":
            assert self.all_ranks().inner.size == self._size  # forms all
            return self._parts[name]

        [members] = [line for line in self.lines(name) if self._rank in line]
        return self._group(f"axis {name} from rank {first}", place, members, form)

    def arrange(self, sizes: Mapping[str, int]) -> None:
        """Lays the ranks out on other axes, before any group is formed. Every rank calls it alike; local.

        Later it may only repeat what holds.

        Args:
            sizes: The number of ranks on each axis; neighbours on the last one have neighbouring ranks. `data` is among
                them, and their product is the number of all ranks.

        Raises:
            ValueError: `sizes` do not fit the job.
            RuntimeError: a group has been formed, on other axes.
        """
        if DATA not in sizes or math.prod(sizes.values()) != self._size or min(sizes.values()) < 1:
            raise ValueError(
                f"received the axes {dict(sizes)} for {self._size} ranks; expected an axis 'data', and numbers of "
                f"ranks whose product is {self._size}. [argument]"
            )
        if self.formed and dict(sizes) != self._sizes:
            raise RuntimeError(
                "the ranks already communicate, too late to arrange them on other axes. Arrange them before the "
                "strategy is made. [communication]"
            )
        self._sizes = dict(sizes)

    def lines(self, name: str) -> tuple[tuple[int, ...], ...]:
        """All the lines of ranks along an axis: of `data`, the ranks that train each model; local.

        >>> axes = Axes(0, 4, NotImplemented, NotImplemented)
        >>> axes.arrange({"stage": 2, "data": 2})
        >>> axes.lines("data"), axes.lines("stage")
        (((0, 1), (2, 3)), ((0, 2), (1, 3)))
        """
        found: dict[int, list[int]] = {}
        for rank in range(self._size):
            found.setdefault(self._line(name, rank)[1], []).append(rank)
        return tuple(map(tuple, found.values()))

    def whereabouts(self, line: str = "") -> Whereabouts:
        """Where this rank is in the collectives and messages of its groups, and in its script; for any thread."""
        groups = list(self._formed.values())
        collectives = [(one.name, one.inside, None) for one in groups if one.inside]
        messages = [(one.name, *message) for one in groups if (message := one.message)]
        group, inside, awaited = next(iter((*collectives, *messages)), ("", "", None))
        entered = {ALL_RANKS: 0} | {one.name: one.num_entered for one in groups}
        return Whereabouts(entered, group, inside, awaited, line)

    def _group(self, name: str, rank: int, members: Sequence[int], form: "Callable[[], Group]") -> "CountedGroup":
        with self._lock:
            if name not in self._groups:
                from paceline.comm.counted_group import CountedGroup  # NumPy, which only a script that talks needs

                self._groups[name] = CountedGroup(name, rank, members, form, self._formed)
            return self._groups[name]

    def _line(self, name: str, rank: int | None = None) -> tuple[int, int]:
        """A rank's place on an axis, this one's if none is given, and the first rank of its line."""
        rank = self._rank if rank is None else rank
        names = list(self._sizes)
        stride = math.prod(self._sizes[later] for later in names[names.index(name) + 1 :])
        place = rank // stride % self._sizes[name]
        return place, rank - place * stride

    def _form(self) -> "Group":
        group = self._connect()
        for name, size in self._sizes.items():
            if size < self._size:
                place, first = self._line(name)
                part = group.split(first, place)
                assert part is not None
                self._parts[name] = part
        self._connected()
        return group
