"""One life of the group of workers: what to do when something happens to it. Pure: no clock, no processes.

The acting code feeds events in, each with the time, and carries out the actions that come back; so every
order of events can be tested, and a restart policy or more hosts can be put above without touching it.

    running ── first failure, a rank that left, an interrupt, start timeout ──► stopping ── all ended ──► done
       └─────────────────────── all workers exit with 0 ──────────────────────────────────────────────────┘
    stopping: SIGTERM to the others at once; SIGKILL to every process of the job after `GRACE_SECONDS`; done,
    whatever is left, after `LIMIT_SECONDS`. A second interrupt kills at once.

Why a failure stops everybody: ranks blocked in a collective never notice a dead peer.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass

from paceline.launcher.outcome import (
    Cause,
    GroupNotFormed,
    Interrupted,
    Outcome,
    WorkerEnd,
    WorkerFailed,
    WorkerLeft,
)
from paceline.rendezvous.channel import Failed, Finishing, Joined, Joining, Message

GRACE_SECONDS = 2.0
"""From SIGTERM to SIGKILL; TensorFlow ignores the first."""

LIMIT_SECONDS = 4.0
"""From the failure to giving up on processes that even SIGKILL does not end."""

WAITING_INTERVAL_SECONDS = 10.0
"""How often at most the user is told whom the others wait for."""


@dataclass(frozen=True, slots=True)
class Said:
    """Event: a worker sent a message."""

    rank: int
    message: Message


@dataclass(frozen=True, slots=True)
class Exited:
    """Event: a worker's process ended; all it had said before was fed in before this."""

    rank: int
    exit_code: int
    """As `subprocess` tells it: below 0 for a signal."""


@dataclass(frozen=True, slots=True)
class SignalReceived:
    """Event: the launcher was told to stop."""

    signal: signal.Signals


Event = Said | Exited | SignalReceived


@dataclass(frozen=True, slots=True)
class Announce:
    """Action: tell the user that the job is being stopped, and why."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class TellWaiting:
    """Action: tell the user that `waiting` ranks wait for `missing` ones."""

    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Terminate:
    """Action: SIGTERM to these workers."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KillAll:
    """Action: SIGKILL to every process of the job, also those that scripts started."""


@dataclass(frozen=True, slots=True)
class Done:
    """Action: report and leave; nothing follows."""

    outcome: Outcome


Action = Announce | TellWaiting | Terminate | KillAll | Done


@dataclass(slots=True)
class _Worker:
    joining: bool = False
    joined: bool = False
    failed: Failed | None = None
    exit_code: int | None = None
    ended_before_stop: bool = False

    @property
    def running(self) -> bool:
        return self.exit_code is None


class Generation:
    """The state of one generation.

    >>> generation = Generation(num_workers=2, start_timeout_seconds=60, now=0.0)
    >>> generation.on(Exited(0, 0), now=1.0)
    []
    >>> [action.outcome.exit_code for action in generation.on(Exited(1, 0), now=1.1)]
    [0]

    Args:
        num_workers: How many ranks there are.
        start_timeout_seconds: How long after the last rank's `Joining` each must be `Joined`. Ranks that live
            and have not asked for the group yet (they may be loading data) are waited for without end.
        now: The time at the start, in seconds; all other times are measured on the same clock.
    """

    def __init__(self, *, num_workers: int, start_timeout_seconds: float, now: float) -> None:
        self._workers = [_Worker() for _ in range(num_workers)]
        self._start_timeout_seconds = start_timeout_seconds
        self._started_at = now
        self._cause: Cause | None = None
        self._done = False
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._tell_waiting_at: float | None = None
        self._form_by: float | None = None

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do at the earliest, if no event comes; None: never."""
        times = (self._kill_at, self._give_up_at, self._tell_waiting_at, self._form_by)
        return None if self._done else min((time for time in times if time is not None), default=None)

    def on(self, event: Event, now: float) -> list[Action]:
        """What to do about `event`, in order."""
        if self._done:
            return []
        match event:
            case SignalReceived(signal=number):
                actions = self._interrupt(number, now)
            case Said(rank=rank, message=message):
                actions = self._hear(rank, message, now)
            case Exited(rank=rank, exit_code=code):
                actions = self._bury(rank, code, now)
        return actions + self._finish()

    def tick(self, now: float) -> list[Action]:
        """What to do because time has passed; harmless when called too early."""
        actions: list[Action] = []
        if self._give_up_at is not None and now >= self._give_up_at:
            return self._finish(give_up=True)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            actions.append(KillAll())
        if self._form_by is not None and now >= self._form_by:
            missing = self._ranks(lambda worker: not worker.joined)
            actions += self._stop(GroupNotFormed(missing, self._start_timeout_seconds), now)
        if self._tell_waiting_at is not None and now >= self._tell_waiting_at:
            self._tell_waiting_at = now + WAITING_INTERVAL_SECONDS
            waiting, missing = self._waiting_and_missing()
            actions.append(TellWaiting(waiting, missing, now - self._started_at))
        return actions

    def _hear(self, rank: int, message: Message, now: float) -> list[Action]:
        worker = self._workers[rank]
        match message:
            case Joining():
                worker.joining = True
            case Joined():
                worker.joining = worker.joined = True
            case Failed():
                worker.failed = worker.failed or message
                return self._stop(WorkerFailed(rank, message.exit_code, message, self._held_up_by(rank)), now)
            case Finishing():
                pass
        return self._await_group(now)

    def _bury(self, rank: int, code: int, now: float) -> list[Action]:
        worker = self._workers[rank]
        worker.exit_code = code
        worker.ended_before_stop = self._cause is None
        if code != 0:
            return self._stop(WorkerFailed(rank, code, worker.failed, self._held_up_by(rank)), now)
        return self._await_group(now)

    def _await_group(self, now: float) -> list[Action]:
        """Looks after ranks that wait for others to join: one left, one is late, or all are coming."""
        if self._cause is not None:
            return []
        left = self._ranks(lambda worker: not worker.joined and not worker.running)
        if left and (held_up := self._held_up_by(left[0])):
            return self._stop(WorkerLeft(left[0], held_up), now)
        waiting, missing = self._waiting_and_missing()
        if not (waiting and missing):
            self._tell_waiting_at = None
        elif self._tell_waiting_at is None:
            self._tell_waiting_at = now + WAITING_INTERVAL_SECONDS
        if not waiting or missing:
            self._form_by = None
        elif self._form_by is None:
            self._form_by = now + self._start_timeout_seconds
        return []

    def _held_up_by(self, rank: int) -> tuple[int, ...]:
        """The ranks that cannot go on without `rank` in the group; none when it is in it."""
        if self._workers[rank].joined:
            return ()
        others = self._ranks(lambda worker: worker.joining and worker.running)
        return tuple(other for other in others if other != rank)

    def _waiting_and_missing(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ranks that asked for the group and do not have it, and ranks that never asked."""
        waiting = self._ranks(lambda worker: worker.joining and not worker.joined and worker.running)
        return waiting, self._ranks(lambda worker: not worker.joining)

    def _interrupt(self, number: signal.Signals, now: float) -> list[Action]:
        if self._cause is not None:  # already stopping: the user wants it sooner
            self._kill_at = None
            return [KillAll()]
        return self._stop(Interrupted(number), now)

    def _stop(self, cause: Cause, now: float) -> list[Action]:
        """Ends the generation because of `cause`; whatever happens later is a consequence of the first."""
        if self._cause is not None:
            return []
        self._cause = cause
        self._tell_waiting_at = self._form_by = None
        running = self._ranks(lambda worker: worker.running)
        if not running:
            return []
        self._kill_at = now + GRACE_SECONDS
        self._give_up_at = now + LIMIT_SECONDS
        # A rank that reported its exception is on its way out by itself, with more to flush.
        others = tuple(rank for rank in running if self._workers[rank].failed is None)
        return [Terminate(others), Announce(cause)]

    def _finish(self, *, give_up: bool = False) -> list[Action]:
        if self._ranks(lambda worker: worker.running) and not give_up:
            return []
        self._done = True
        ends = [
            WorkerEnd(rank, worker.exit_code, worker.failed, worker.ended_before_stop)
            for rank, worker in enumerate(self._workers)
        ]
        return [Done(Outcome(self._cause, tuple(ends)))]

    def _ranks(self, chosen: Callable[[_Worker], bool]) -> tuple[int, ...]:
        return tuple(rank for rank, worker in enumerate(self._workers) if chosen(worker))
