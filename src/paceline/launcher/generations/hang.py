"""Detects hangs: ranks that make no steps, and the ranks for which the others wait; late ranks at the start. Pure.

    rank 0   step 7 ─► collective 41 ─► enters 42, waits ························
    rank 1   step 7 ─► collective 41 ─► somewhere else ··························   holds the others up
                                       └── hang timeout ──► asked where they are ─► verdict

When ranks were last heard of tells nothing: the last thing that all have told is the same step.
"""

from collections.abc import Sequence

from paceline.events.head_events import RanksWaiting
from paceline.events.worker_events import BatchDone, FitEnded, StepDone, StepsAwaited, TraceBegan
from paceline.launcher.generations.decisions import Action, Examine, GroupNotFormed, Hung, WorkerLeft
from paceline.launcher.generations.worker_state import (
    WorkerState,
    end_trace,
    held_up_by,
    oldest_step,
    ranks_where,
    waiting_and_missing,
)
from paceline.rendezvous.channel import ALL_RANKS, Finishing, Joined, Joining

STACKS_SECONDS = 0.5
"""How long the stacks of ranks that hang may take to be written."""


class HangWatch:
    """Looks for ranks that make no steps.

    Args:
        workers: In rank order.
        timeout_seconds: How long ranks that make steps may make none; None: for ever.
    """

    def __init__(self, workers: Sequence[WorkerState], timeout_seconds: float | None) -> None:
        self._workers = workers
        self._timeout_seconds = timeout_seconds
        self._examined_at: float | None = None

    @property
    def due_at(self) -> float | None:
        """When `look` has something to do; None: nobody makes steps, or no limit."""
        oldest = oldest_step(self._workers)
        if self._timeout_seconds is None or oldest is None:
            return None
        if self._examined_at is not None:
            return self._examined_at + STACKS_SECONDS
        return oldest + self._timeout_seconds

    def hear(
        self,
        worker: WorkerState,
        message: StepDone | BatchDone | TraceBegan | StepsAwaited | FitEnded | Finishing,
        now: float,
    ) -> None:
        """A rank has made a step, traces one, waits for one that is a server's, or makes none for now."""
        if isinstance(message, TraceBegan):
            worker.tracing = True
        elif isinstance(message, StepsAwaited):
            worker.stepped_at = None if worker.stepped_at is None else now
        else:
            end_trace(self._workers, worker, now)
            worker.stepped_at = now if isinstance(message, StepDone | BatchDone) else None
        if isinstance(message, TraceBegan | StepDone | BatchDone | StepsAwaited):
            self._examined_at = None

    def look(
        self, step: int | None, now: float, *, standing_still: int | None = None
    ) -> tuple[list[Action], Hung | None]:
        """What is to be done about ranks that make no steps, and when that has been done, the verdict.

        Args:
            step: The last one that was told of.
            now: The time.
            standing_still: A rank that has made no step yet, and does not even run: it need not be asked.
        """
        if standing_still is None and (examine := self._examine(now)) is not None:
            return [examine], None
        hung = self._verdict(step, standing_still)
        if hung is None or standing_still is None:
            return [], hung
        return [Examine((standing_still,), hung.timeout_seconds)], hung

    def _examine(self, now: float) -> Examine | None:
        """First all are asked where they are; None: they have been."""
        oldest = oldest_step(self._workers)
        if self._examined_at is not None or oldest is None:
            return None
        self._examined_at = now
        return Examine(forget_places(self._workers), now - oldest)

    def _verdict(self, step: int | None, standing_still: int | None) -> Hung | None:
        """What is known of the cause; None: there is no limit."""
        if self._timeout_seconds is None:
            return None
        running = ranks_where(self._workers, lambda worker: worker.running)
        if standing_still is not None:
            return Hung((standing_still,), step, self._timeout_seconds, ((standing_still, "is stopped"),))
        states = tuple((rank, state_text(self._workers[rank])) for rank in running)
        return Hung(holding_up(self._workers), step, self._timeout_seconds, states)


def forget_places(workers: Sequence[WorkerState]) -> tuple[int, ...]:
    """Forgets where ranks have said that they are; returns those that run, to be asked again."""
    for worker in workers:
        worker.whereabouts, worker.stopped = None, False
    return ranks_where(workers, lambda worker: worker.running)


def holding_up(workers: Sequence[WorkerState]) -> tuple[int, ...]:
    """The ranks that the others are known to wait for; none where that is not known.

    Those that are stopped; else those that have not come to a collective in which others wait, or from whom others wait
    for a message, but do not wait for one themselves; or, if there are none, those that do not answer.
    """
    running = ranks_where(workers, lambda worker: worker.running)
    stopped = tuple(rank for rank in running if workers[rank].stopped)
    if stopped:
        return stopped
    told = {rank: where for rank in running if (where := workers[rank].whereabouts) is not None}
    awaited = {where.awaited for where in told.values() if where.awaited is not None}
    waiting = {
        (where.group, where.entered[where.group]) for where in told.values() if where.inside and where.awaited is None
    }
    if not waiting and not awaited:
        return ()
    behind = tuple(
        rank
        for rank, where in told.items()
        if where.awaited is None
        and (
            rank in awaited
            or any(group in where.entered and where.entered[group] < number for group, number in waiting)
        )
    )
    silent = tuple(rank for rank in running if rank not in told)
    return behind or silent


def state_text(worker: WorkerState) -> str:
    """Where a rank is, to complete the sentence "rank 1 …"."""
    if worker.stopped:
        return "is stopped (SIGSTOP, or a debugger)"
    if (where := worker.whereabouts) is None:
        return "does not answer: its Python interpreter is blocked, or its host is too busy"
    at = f", at {where.line}" if where.line else ""
    if where.awaited is not None:
        return f"waits for rank {where.awaited} in {where.inside}{at}"
    if where.inside:
        of_group = "" if where.group == ALL_RANKS else f" of {where.group}"
        return f"waits in collective {where.entered[where.group]}{of_group} ({where.inside}){at}"
    return f"is in no collective, after {sum(where.entered.values())}{at}"


WAITING_INTERVAL_SECONDS = 10.0
"""How often at most the user is told whom the others wait for."""


class Forming:
    """Looks after ranks that wait for others to join.

    Args:
        workers: In rank order; whoever changes them says so by `look`.
        start_timeout_seconds: How long after the last rank's `Joining` each must be `Joined`.
        now: The time at the start.
    """

    def __init__(self, workers: Sequence[WorkerState], start_timeout_seconds: float, now: float) -> None:
        self._workers = workers
        self._start_timeout_seconds = start_timeout_seconds
        self._started_at = now
        self._num_joined = 0
        self._tell_at: float | None = None
        self._form_by: float | None = None

    @property
    def deadline(self) -> float | None:
        """When there is something to say or to end; None: never."""
        return min((time for time in (self._tell_at, self._form_by) if time is not None), default=None)

    def hear(self, worker: WorkerState, message: Joining | Joined) -> None:
        """It asks for the group, or is in it."""
        worker.joining = True
        if isinstance(message, Joined):
            self._num_joined += not worker.joined
            worker.joined = True

    def look(self, now: float) -> WorkerLeft | None:
        """One left, one is late, or all are coming; a rank that has left and is missed."""
        if self._num_joined == len(self._workers):  # asked with every message: from here on nobody waits for anybody
            self.end()
            return None
        left = ranks_where(self._workers, lambda worker: not worker.joined and not worker.running)
        if left and (held_up := held_up_by(self._workers, left[0])):
            return WorkerLeft(left[0], held_up)
        waiting, missing = waiting_and_missing(self._workers)
        if not (waiting and missing):
            self._tell_at = None
        elif self._tell_at is None:
            self._tell_at = now + WAITING_INTERVAL_SECONDS
        if not waiting or missing:
            self._form_by = None
        elif self._form_by is None:
            self._form_by = now + self._start_timeout_seconds
        return None

    def end(self) -> None:
        """Nobody waits any more."""
        self._tell_at = self._form_by = None

    def late(self, now: float) -> GroupNotFormed | None:
        """What ends the generation because the time is over."""
        if self._form_by is None or now < self._form_by:
            return None
        missing = ranks_where(self._workers, lambda worker: not worker.joined)
        return GroupNotFormed(missing, self._start_timeout_seconds)

    def words(self, now: float) -> list[RanksWaiting]:
        """What the user is to hear from time to time."""
        if self._tell_at is None or now < self._tell_at:
            return []
        self._tell_at = now + WAITING_INTERVAL_SECONDS
        waiting, missing = waiting_and_missing(self._workers)
        return [RanksWaiting(waiting, missing, now - self._started_at)]
