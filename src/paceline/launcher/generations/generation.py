"""One generation of workers: decides what to do about each event. Pure: no clock, no processes.

The acting code feeds events in, each with the time, and carries out the actions that come back; so every
order of events can be tested, and a restart policy or more hosts can be put above without touching it.

    running ── first failure, a rank that left, an interrupt, a host lost, start timeout ─► stopping ─ all ended ─► done
       │ ╲── no step within the hang timeout: stacks are asked for, then ──────────────────────► ▲                  ▲
       │  ╲─ SIGTERM where snapshots are taken, or a worker that was preempted ──► leaving ── overdue               │
       │                                                                             └──── all exit with 75 ────────┤
       └─────────────────────── all workers exit with 0 ────────────────────────────────────────────────────────────┘
    stopping: SIGTERM to the others at once; SIGKILL to every process of the job after `GRACE_SECONDS`; done,
    whatever is left, after `LIMIT_SECONDS`. A second interrupt kills at once, but no SIGPIPE (`| tee` has gone).
    leaving: all ranks finish the same step, write one snapshot and end by themselves, within `LEAVING_SECONDS`, or
    sooner where one fails. However that ends, the job was preempted: ranks fail now because others have left.
    When all ranks have ended, processes outside of the world (`auxiliaries.py`) are told to end, evaluators in peace.

Why a failure stops everybody: ranks blocked in a collective never notice a dead peer.
"""

import signal
from collections.abc import Sequence

from paceline.cluster.launched import PREEMPTION_SIGNALS
from paceline.cluster.spec import Role, Task
from paceline.errors import EXIT_PREEMPTED
from paceline.events import worker_events as events
from paceline.events.head_events import HostLost, LastWorkBegan, PreemptionBegan, RankEnded
from paceline.launcher.generations.auxiliaries import LAST_WORK_SECONDS, Auxiliaries
from paceline.launcher.generations.decisions import (
    Action,
    Announce,
    Cause,
    Done,
    Hung,
    Input,
    Interrupted,
    Outcome,
    Preemption,
    RoleFailed,
    Said,
    SignalReceived,
    Terminate,
    WorkerFailed,
)
from paceline.launcher.generations.hang import Forming, HangWatch
from paceline.launcher.generations.restarts import RestartBudget
from paceline.launcher.generations.vanished import Vanished
from paceline.launcher.generations.worker_state import WorkerState, end_trace, held_up_by, oldest_step, ranks_where
from paceline.rendezvous import channel
from paceline.rendezvous.agent_messages import Kill

GRACE_SECONDS = 2.0
"""From SIGTERM to SIGKILL; TensorFlow ignores the first."""

LIMIT_SECONDS = 4.0
"""From the failure to giving up on processes that even SIGKILL does not end."""

LEAVING_SECONDS = 8.0
"""How long a last snapshot may take; with what follows, a preempted job is over within 10 s."""

_PREEMPTED = (EXIT_PREEMPTED, *(-number for number in PREEMPTION_SIGNALS))
"""How workers end that were told to leave: outside of a `fit`, or before there is anybody who listens."""


class Generation:
    """The state of one generation.

    >>> generation = Generation(num_workers=2, start_timeout_seconds=60, now=0.0)
    >>> generation.on(RankEnded(0, 0), now=1.0)
    []
    >>> [action.outcome.exit_code for action in generation.on(RankEnded(1, 0), now=1.1)]
    [0]

    Args:
        num_workers: How many ranks there are.
        auxiliaries: Task and role of each process outside of the world; they are numbered on behind the ranks.
        budget: The restarts that are left to them; None: none.
        start_timeout_seconds: How long after the last rank's `Joining` each must be `Joined`. Ranks that live
            and have not asked for the group yet (they may be loading data) are waited for without end.
        now: The time at the start, in seconds; all other times are measured on the same clock.
        takes_snapshots: Whether workers that get a SIGTERM write a snapshot before they leave, as far as it is known
            before they say so.
        hang_timeout_seconds: How long ranks that make steps may make none; None: for ever.
    """

    def __init__(
        self,
        *,
        num_workers: int,
        auxiliaries: Sequence[tuple[Task, Role]] = (),
        budget: RestartBudget | None = None,
        start_timeout_seconds: float,
        now: float,
        takes_snapshots: bool = False,
        hang_timeout_seconds: float | None = None,
    ) -> None:
        self._workers = [WorkerState() for _ in range(num_workers)]
        self._auxiliaries = Auxiliaries(auxiliaries, num_workers, now, budget or RestartBudget(0))
        self._forming = Forming(self._workers, start_timeout_seconds, now)
        self._cause: Cause | None = None
        self._done = False
        self._closing = False
        """Whether all ranks have ended, and the others were told to."""
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self.takes_snapshots = takes_snapshots
        """Whether workers that get a SIGTERM write a snapshot before they leave, as far as it is known."""
        self._hang = HangWatch(self._workers, hang_timeout_seconds)
        self._vanished = Vanished(self._workers)
        self._leaving_by: float | None = None
        self._was_told = False
        self.step: int | None = None
        """The last step that some rank told of, over all fits of the job; None: none yet."""

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do at the earliest, if no event comes; None: never."""
        ends = (self._kill_at, self._give_up_at, self._leaving_by, self._forming.deadline, self._auxiliaries.deadline)
        waits = () if self._cause or self._leaving_by is not None else (self._hang.due_at, self._vanished.due_at)
        times = (time for time in (*ends, *waits) if time is not None)
        return None if self._done else min(times, default=None)

    def on(self, event: Input, now: float) -> list[Action]:
        """What to do about `event`, in order."""
        if self._done:
            return []
        match event:
            case SignalReceived(signal=number):
                actions = self._interrupt(number, now, is_relayed=event.is_relayed)
            case Said(message=events.FaultInjected(server=name) | events.WorkerStuck(server=name) as why) if name:
                actions = self._auxiliaries.end(name, why)
            case Said(rank=rank, message=message) if rank >= len(self._workers):
                actions = self._auxiliaries.hear(rank, message)
            case RankEnded(rank=rank, exit_code=code) if rank >= len(self._workers):
                actions = self._bury_auxiliary(rank, code, now)
            case Said(rank=rank, message=message):
                actions = self._hear(rank, message, now)
            case RankEnded(rank=rank, exit_code=code):
                actions = self._bury(rank, code, now)
            case HostLost():
                actions = self._lose(event, now)
        return actions + self._finish(now)

    def tick(self, now: float) -> list[Action]:
        """What to do because time has passed; harmless when called too early."""
        actions: list[Action] = []
        if self._give_up_at is not None and now >= self._give_up_at:
            return self._finish(now, give_up=True)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            actions.append(Kill())
        if self._leaving_by is not None and now >= self._leaving_by:
            self._leaving_by = None
            actions += self._stop(Preemption(self.step), now)
        if self._cause is None and self._leaving_by is None:
            looks, missed = self._vanished.look(now)
            actions += looks if missed is None else self._stop(missed, now)
            actions += [] if self._hang.due_at is None or now < self._hang.due_at else self._end_hang(now)
        if (late := self._forming.late(now)) is not None:
            actions += self._stop(late, now)
        return actions + self._forming.words(now) + self._auxiliaries.due(now)

    def _hear(self, rank: int, message: channel.Message, now: float) -> list[Action]:
        worker = self._workers[rank]
        match message:
            case channel.Joining() | channel.Joined():
                self._forming.hear(worker, message)
            case channel.Failed(exit_code=code) if code == EXIT_PREEMPTED and self.takes_snapshots:
                return self._leave(now, told=(rank,))
            case channel.Failed():
                worker.failed = worker.failed or message
                return self._stop(WorkerFailed(rank, message.exit_code, message, held_up_by(self._workers, rank)), now)
            case channel.KeepsSnapshots():
                self.takes_snapshots = True
            case events.StepDone(step=step) | events.BatchDone(step=step):
                self._hang.hear(worker, message, now)
                self.step = step if self.step is None else max(self.step, step)
            case events.TrainingResumed(step=step):
                self.step = step or None  # begun anew: before the first step, as at the start of a job
            case events.Preempted():
                return self._leave(now, told=range(len(self._workers)))  # by each other
            case channel.Stopped() if worker.stepped_at is None or oldest_step(self._workers) is None:
                return self._end_hang(now, standing_still=rank)
            case events.TraceBegan() | events.StepsAwaited() | events.FitEnded() | channel.Finishing():
                self._hang.hear(worker, message, now)
            case _:
                worker.note(message)
        return self._look_after_forming(now)

    def _end_hang(self, now: float, standing_still: int | None = None) -> list[Action]:
        """No step for too long, or a rank that does not run before its first: first all are asked, then the end."""
        looks, hung = self._hang.look(self.step, now, standing_still=standing_still)
        if self._cause is not None:
            return []
        return looks if hung is None else [*looks, *self._stop(hung, now)]

    def _leave(self, now: float, told: Sequence[int] = ()) -> list[Action]:
        """All ranks are about to end by themselves, after one snapshot; those that do not know it yet are `told`."""
        if self._leaving_by is not None or self._cause is not None:
            return []
        self._leaving_by = now + LEAVING_SECONDS
        self._forming.end()
        self._auxiliaries.stop()
        others = tuple(rank for rank in ranks_where(self._workers, lambda worker: worker.running) if rank not in told)
        return [Terminate(others), PreemptionBegan()] if others else []

    def _bury(self, rank: int, code: int, now: float) -> list[Action]:
        worker = self._workers[rank]
        worker.exit_code = code
        worker.ended_before_stop = self._cause is None
        worker.ended_in_fit = worker.in_fit
        end_trace(self._workers, worker, now)
        if code in _PREEMPTED and self.takes_snapshots:
            return self._leave(now)
        if code != 0:
            return self._stop(WorkerFailed(rank, code, worker.failed, held_up_by(self._workers, rank)), now)
        missed = self._vanished.bury(rank, now)
        return self._look_after_forming(now) if missed is None else self._stop(missed, now)

    def _bury_auxiliary(self, rank: int, code: int, now: float) -> list[Action]:
        verdict = self._auxiliaries.bury(rank, code, now)
        if isinstance(verdict, RoleFailed):
            return self._leave(now) if code in _PREEMPTED and self.takes_snapshots else self._stop(verdict, now)
        return verdict

    def _lose(self, event: HostLost, now: float) -> list[Action]:
        lost = tuple(rank for rank in event.ranks if rank < len(self._workers) and self._workers[rank].running)
        for rank in lost:
            self._workers[rank].gone = True
        is_needed = self._auxiliaries.lose(event.ranks, now) or lost  # if all its processes had ended, it owes nothing
        return self._stop(HostLost(lost, event.host, event.reason), now) if is_needed else []

    def _look_after_forming(self, now: float) -> list[Action]:
        if self._cause is not None or self._leaving_by is not None:
            return []
        return [] if (left := self._forming.look(now)) is None else self._stop(left, now)

    def _interrupt(self, number: signal.Signals, now: float, *, is_relayed: bool) -> list[Action]:
        if number == signal.SIGPIPE and (self._cause is not None or self._leaving_by is not None or self._closing):
            return []  # nobody's word: `| tee` was told to stop with the whole process group
        if self._cause == Interrupted(signal.SIGPIPE):  # and its end was seen before the word to this process
            self._cause = self._kill_at = self._give_up_at = None
        if self._cause is not None or self._closing:  # already stopping: the user wants it sooner
            if is_relayed:
                return []
            self._kill_at = None
            return [Kill()]
        is_preemption = self.takes_snapshots and number in PREEMPTION_SIGNALS
        # A scheduler tells the launchers of all hosts and their workers: only a second word here means "sooner".
        if is_preemption and (is_relayed or not self._was_told):
            self._was_told = self._was_told or not is_relayed
            return self._leave(now)
        self._leaving_by = None
        return self._stop(Preemption(self.step) if is_preemption else Interrupted(number), now)

    def _stop(self, cause: Cause, now: float) -> list[Action]:
        """Ends the generation because of `cause`; whatever happens later is a consequence of the first."""
        if self._cause is not None:
            return []
        if self._leaving_by is not None:  # it cannot take its part in a snapshot
            self._leaving_by = min(self._leaving_by, now + GRACE_SECONDS)
            return []
        self._cause = cause
        self._forming.end()
        self._auxiliaries.stop()
        running = ranks_where(self._workers, lambda worker: worker.running)
        if not running and not self._auxiliaries.running:
            return []
        # Where snapshots are taken, ranks that fall with another one have nothing to save that is worth a wait.
        falls = self.takes_snapshots and isinstance(cause, WorkerFailed | RoleFailed | HostLost | Hung | Preemption)
        self._kill_at = now + (0.0 if falls else GRACE_SECONDS)
        self._give_up_at = now + LIMIT_SECONDS
        # A rank that reported its exception is on its way out by itself, with more to flush.
        others = tuple(rank for rank in running if self._workers[rank].failed is None)
        return [Announce(cause), Terminate((*others, *self._auxiliaries.running))]

    def _close(self, now: float) -> list[Action]:
        """All ranks have ended: what stands beside them has nothing to do any more."""
        self._auxiliaries.stop()
        if self._closing or self._cause is not None or not self._auxiliaries.running:
            return []
        self._closing = True
        self._leaving_by = None
        late = self._auxiliaries.with_last_work if all(worker.exit_code == 0 for worker in self._workers) else ()
        more_seconds = LAST_WORK_SECONDS if late else 0.0
        self._kill_at, self._give_up_at = now + GRACE_SECONDS + more_seconds, now + LIMIT_SECONDS + more_seconds
        return [Terminate(self._auxiliaries.running), *([LastWorkBegan(late, more_seconds)] if late else [])]

    def _finish(self, now: float, *, give_up: bool = False) -> list[Action]:
        if not give_up and any(worker.running for worker in self._workers):
            return []
        actions = self._close(now)
        if not give_up and self._auxiliaries.running:
            return actions
        self._done = True
        ends = tuple(worker.end(rank) for rank, worker in enumerate(self._workers))
        cause = self._cause
        if cause is None and any(worker.exit_code != 0 or worker.failed for worker in self._workers):
            cause = Preemption(self.step)
        return [*actions, Done(Outcome(cause, ends))]
