"""What a generation knows about each rank, and which ranks wait for which. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.events.worker_events import FaultInjected
from paceline.launcher.generations.decisions import WorkerEnd
from paceline.rendezvous.channel import Failed, KilledFromOutside, Left, Message, Stopped, Whereabouts


@dataclass(slots=True)
class WorkerState:
    """One rank, as far as its messages and its end have told."""

    joining: bool = False
    """It has asked for the group."""
    joined: bool = False
    left: bool = False
    """It is in the group no more, and nobody waits for it."""
    failed: Failed | None = None
    exit_code: int | None = None
    ended_before_stop: bool = False
    ended_in_fit: bool = False
    stepped_at: float | None = None
    """When it last told of a step, and was in `fit`."""
    tracing: bool = False
    """Whether the step that comes next is traced first."""
    gone: bool = False
    """With its host: nobody will ever say how it ended."""
    stopped: bool = False
    """The kernel did not let it run when it was last looked at."""
    whereabouts: Whereabouts | None = None
    """Its answer to the last question."""
    killed_from_outside: KilledFromOutside | None = None
    injected_fault: str | None = None

    def note(self, message: Message) -> None:
        """What is said only to be thought of later; nothing of the rest."""
        match message:
            case Left():
                self.left = True
            case Stopped():
                self.stopped = True
            case Whereabouts():
                self.whereabouts = message
            case FaultInjected(fault=fault):
                self.injected_fault = fault
            case KilledFromOutside():
                self.killed_from_outside = message

    @property
    def in_fit(self) -> bool:
        """Whether it makes steps, or traces the first one: the others wait for it in each."""
        return self.tracing or self.stepped_at is not None

    @property
    def running(self) -> bool:
        """Whether it has neither ended nor gone."""
        return self.exit_code is None and not self.gone

    def end(self, rank: int) -> WorkerEnd:
        """What became of it, as `rank`."""
        return WorkerEnd(
            rank,
            self.exit_code,
            self.failed,
            self.ended_before_stop,
            self.gone,
            self.killed_from_outside,
            self.injected_fault,
            self.ended_in_fit,
        )


def oldest_step(workers: Sequence[WorkerState]) -> float | None:
    """When the running rank that was heard of longest ago told of a step; None: no steps are due.

    None are as long as some rank traces: the others wait for it, or trace the same.
    """
    if any(worker.tracing and worker.running for worker in workers):
        return None
    times = [worker.stepped_at for worker in workers if worker.running and worker.stepped_at is not None]
    return min(times, default=None)


def end_trace(workers: Sequence[WorkerState], worker: WorkerState, now: float) -> None:
    """`worker` does not trace any more: those that waited for it meanwhile have missed nothing."""
    if worker.tracing:
        worker.tracing = False
        for other in workers:
            other.stepped_at = None if other.stepped_at is None else now


def ranks_where(workers: Sequence[WorkerState], chosen: Callable[[WorkerState], bool]) -> tuple[int, ...]:
    """The ranks of those of `workers` (in rank order) for which `chosen` is true."""
    return tuple(rank for rank, worker in enumerate(workers) if chosen(worker))


def held_up_by(workers: Sequence[WorkerState], rank: int) -> tuple[int, ...]:
    """The ranks that cannot go on without `rank` in the group; none when it is in it."""
    if workers[rank].joined:
        return ()
    others = ranks_where(workers, lambda worker: worker.joining and worker.running)
    return tuple(other for other in others if other != rank)


def waiting_and_missing(workers: Sequence[WorkerState]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ranks that asked for the group and do not have it, and ranks that never asked."""
    waiting = ranks_where(workers, lambda worker: worker.joining and not worker.joined and worker.running)
    return waiting, ranks_where(workers, lambda worker: not worker.joining)
