"""``--shares auto``: in a `fit`, workers that compute longer get fewer rows of the same global batches.

    a step's first message ─► every rank hears of all: rows, clocks ─► `ShareChoice` ─► other shares
                                                                                           │
    the source of the data: `ShareTable` ◄── from the first batch on that no rank has rows of ┘

All ranks decide by what the same messages have brought, and so alike. The training data of the `fit` that is timed
follow at once. Any other iterator, such as a validation's, has from its beginning to its end the shares that hold as it
begins. Where the rows of a rank begin in a step, that step's message says: what divides a step knows of no shares.
"""

import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from paceline.cluster.communication import Communication
from paceline.cluster.row_shares import AUTO, text_in
from paceline.comm.group import Array
from paceline.comm.share_choice import ShareChoice
from paceline.comm.world import World
from paceline.data.own_rows.share_table import Shares, ShareTable
from paceline.errors import ConfigurationError
from paceline.events.bus import bus
from paceline.events.worker_events import SharesChanged
from paceline.fit.run import Run

_LOGGER = logging.getLogger("paceline")

_SAID_ONCE = (
    "--shares auto: which rows a worker computes depends on the clock, so the last bits of the numbers differ from run "
    "to run; --shares with the numbers that the lines to come say repeats them [shares]"
)


class Choice(Protocol):
    """See `ShareChoice`."""

    def hear(self, first: int, told: Array, rows: Sequence[int]) -> Shares | None:
        """The new shares; None: they stay."""
        ...


class AutoShares:
    """Of a process: see the module. As `World.sharing`, it is told of first messages.

    Args:
        world: The process's.
    """

    choose: Callable[[int], Choice] = ShareChoice
    """Makes what decides in a `fit`, from the number of ranks. The same on all ranks."""

    def __init__(self, world: World) -> None:
        self._world = weakref.proxy(world)
        self._rank, self._size = world.data.rank, world.data.size
        self._is_chief = world.is_chief
        self._shares: Shares = (1,) * self._size
        self._run: Run | None = None
        """The `fit` that goes on."""
        self._choice: Choice | None = None
        self._table: ShareTable | None = None
        """Of its training data."""
        self._has_said = False

    def table(self) -> ShareTable:
        """A new one, for data whose rows are shared out."""
        return ShareTable(self._rank, self._size)

    @contextmanager
    def during_fit(self, run: Run) -> Iterator[None]:
        """While this lasts, the shares follow the steps of a `fit`."""
        self._run, self._choice, self._world.sharing = run, type(self).choose(self._size), self
        try:
            yield
        finally:
            self.step_has_begun()
            self._run = self._choice = self._table = self._world.sharing = None

    def begin(self, table: ShareTable) -> None:
        """A new iterator over the data of a table is about to be made. The caller calls this on all ranks."""
        table.begin(self._shares)
        if self._run is not None and Run.current() is self._run:
            self._table = table
            if self._is_chief and not self._has_said:
                self._has_said = True
                _LOGGER.info("%s", _SAID_ONCE)

    def position(self, table: ShareTable | None) -> Any:
        """As JSON, for `go_on`: the shares now, those by the number of a batch, and how many batches have been read."""
        changes, num_taken = ([], 0) if table is None else table.position
        return {"now": self._shares, "changes": changes, "num_taken": num_taken}

    def go_on(self, table: ShareTable | None, position: Any) -> None:
        """From a `position` of as many ranks."""
        self._shares = tuple(position["now"])
        if table is not None and position["changes"]:
            changes = [(first, tuple(shares)) for first, shares in position["changes"]]
            table.go_on(changes, position["num_taken"])

    # As `Sharing`.

    def step_begins(self) -> int:
        """See `Sharing`."""
        return 0 if self._table is None else self._table.bound()

    def hear(self, first: int, told: Array, rows: Array, num_batches: int) -> None:
        """See `Sharing`."""
        if self._table is None or self._choice is None or rows.min() < 0:
            return
        shares = self._choice.hear(first, told, [int(number) for number in rows])
        if shares is None:
            return
        self._shares = shares
        self._table.change(num_batches, shares)
        if self._is_chief:
            text = line_of_change(shares, num_batches)
            bus.emit(SharesChanged(self._world.rank, tuple(shares), text))
            _LOGGER.info("%s", text)

    def step_has_begun(self) -> None:
        """See `Sharing`."""
        if self._table is not None:
            self._table.release()


def line_of_change(shares: Shares, first: int) -> str:
    """What the chief says when workers get other rows; pure.

    >>> line_of_change((42, 21), 29)
    'rank 1 gets 21 of 63 rows from batch 30 of the data on: it computes 2.0 times as long per row; --shares 42,21 would keep these shares [shares]'
    """  # noqa: E501
    rank = min(range(len(shares)), key=lambda rank: shares[rank])
    others = sorted(rows for other, rows in enumerate(shares) if other != rank)
    ratio = others[len(others) // 2] / max(1, shares[rank])
    return (
        f"rank {rank} gets {shares[rank]} of {sum(shares)} rows from batch {first + 1} of the data on: it computes "
        f"{ratio:.1f} times as long per row; --shares {','.join(map(str, shares))} would keep these shares [shares]"
    )


_of_worlds: "weakref.WeakKeyDictionary[World, AutoShares]" = weakref.WeakKeyDictionary()


def auto_shares_of(world: World) -> AutoShares | None:
    """The one of a world; None: its shares are fixed.

    Raises:
        ConfigurationError: what carries the numbers tells nobody how long others compute.
    """
    if text_in() != AUTO or not world.identity.in_world or world.size == 1 or world.data.size == 1:
        return None
    if world.communication is not Communication.MPI:
        raise ConfigurationError(
            f"--shares auto needs to hear how long each worker computes, which {world.communication.value} cannot "
            "tell. Add --communication mpi, or give numbers, such as --shares 2,1. [shares]"
        )
    if world not in _of_worlds:
        _of_worlds[world] = AutoShares(world)
    return _of_worlds[world]
