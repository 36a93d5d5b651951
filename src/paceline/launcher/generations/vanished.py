"""Ranks that ended with code 0 and had not left the group: whether the others wait for them. Pure.

    rank 1   in `fit` ──► os._exit(0) ─► the verdict at once: no other rank can make its next step
             elsewhere ─► os._exit(0) ─► the others are asked where they are ◄─ some time later ─┐
                                           │                                                     │
                                           ├── one is at work of its own, or comes on ───────────┘
                                           └── all wait in the same collectives as before: the verdict

Outside of `fit` such an end may be that of the script on every rank: some scripts skip the interpreter's end on
purpose, and the chief may still write files for a while.
"""

from collections.abc import Sequence

from paceline.launcher.generations.decisions import Action, Examine, WorkerFailed
from paceline.launcher.generations.hang import forget_places
from paceline.launcher.generations.worker_state import WorkerState, ranks_where

FIRST_LOOK_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0
"""How long after such an end the others are asked, and how often at least."""

ANSWER_SECONDS = 0.5
"""How long they may take to answer; who takes longer is asked again."""

_Places = list[tuple[int, str, dict[str, int]]]
"""Of each rank the collective in which it waits, and how many it has entered."""


class Vanished:
    """Looks after those who may wait for a rank that has gone.

    Args:
        workers: In rank order.
    """

    def __init__(self, workers: Sequence[WorkerState]) -> None:
        self._workers = workers
        self._first: int | None = None
        """The first rank that went without leaving; None: none did."""
        self._is_asked = False
        self._before: _Places = []
        self._pause_seconds = FIRST_LOOK_SECONDS
        self.due_at: float | None = None
        """When `look` has something to do; None: never."""

    def bury(self, rank: int, now: float) -> WorkerFailed | None:
        """`rank` has ended with code 0; what that means, if the others need it for certain."""
        worker = self._workers[rank]
        if not worker.joined or worker.left or not self._remaining():
            return None
        if worker.ended_in_fit:
            return self._verdict(rank)
        if self._first is None:
            self._first, self.due_at = rank, now + FIRST_LOOK_SECONDS
        return None

    def look(self, now: float) -> tuple[list[Action], WorkerFailed | None]:
        """What is to be done about the others, and when they have told where they are, the verdict."""
        if self._first is None or self.due_at is None or now < self.due_at:
            return [], None
        if not (remaining := self._remaining()):
            self.due_at = None
            return [], None
        if not self._is_asked:
            self._is_asked, self.due_at = True, now + ANSWER_SECONDS
            return [Examine(forget_places(self._workers), None)], None
        places = self._places(remaining)
        if places and places == self._before:
            return [], self._verdict(self._first)
        if not places:
            self._pause_seconds = min(LONGEST_PAUSE_SECONDS, 2 * self._pause_seconds)
        self._before, self._is_asked, self.due_at = places, False, now + self._pause_seconds
        return [], None

    def _verdict(self, rank: int) -> WorkerFailed:
        return WorkerFailed(rank, 0, None, self._remaining())

    def _remaining(self) -> tuple[int, ...]:
        """The ranks that are still in the group."""
        return ranks_where(self._workers, lambda worker: worker.running and not worker.left)

    def _places(self, ranks: Sequence[int]) -> _Places:
        """Where `ranks` wait; nothing where one is at work of its own, or has not answered."""
        told = [(rank, self._workers[rank].whereabouts) for rank in ranks]
        waiting = [(rank, where.inside, where.entered) for rank, where in told if where is not None and where.inside]
        return waiting if len(waiting) == len(ranks) else []
