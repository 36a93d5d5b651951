"""Carries out what ``generation.py`` decides, in an event loop. Makes no decisions.

crews ── messages, ends, losses ──► Generation ── actions ──► signals, kills, words
  └────── output ─────────────────► WorkerOutput ──► Screen, log files
  └────── barriers of MPI's keys ─► Fence ── all ranks came ──► crews
"""

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence

from msgspec import structs

from paceline.cluster.launched import slot_holders
from paceline.events.bus import Bus
from paceline.events.head_events import (
    ClockMeasured,
    GenerationBegan,
    GenerationEnded,
    HangFound,
    HostJoined,
    HostLost,
    LastWorkBegan,
    Notice,
    PreemptionBegan,
    RankEnded,
    RanksWaiting,
    StopBegan,
    StuckFound,
    WorkerStarted,
)
from paceline.events.worker_events import OfRank
from paceline.launcher.generations import report
from paceline.launcher.generations.deaths import Witness, outlived_lines
from paceline.launcher.generations.decisions import (
    Action,
    Announce,
    Cause,
    Done,
    Examine,
    Input,
    Outcome,
    Said,
    SignalReceived,
    TellDeath,
    Terminate,
    cause_text,
)
from paceline.launcher.generations.generation import Generation
from paceline.launcher.generations.names import names_of
from paceline.launcher.output.screen import Screen
from paceline.launcher.output.worker_output import WorkerOutput
from paceline.launcher.workers.crew import Crew, Heard
from paceline.rendezvous import agent_messages, pmi
from paceline.rendezvous.agent_messages import (
    Begin,
    Complaint,
    Examined,
    Fence,
    Garbled,
    Interrupt,
    Kill,
    Order,
    Release,
    Replace,
    Spoke,
    Started,
    WorkerEnded,
    Wrote,
)
from paceline.rendezvous.channel import Failed, Message


class Supervision:
    """Watches the workers of one generation until it is done.

    Args:
        loop: The running event loop.
        generation: Decides.
        crews: The hosts, each with its order; in rank order.
        outputs: By rank, as all that is said of a process; those outside of the world are numbered on behind the ranks.
        screen: Shows the live line.
        bus: Where events of workers, and of their processes, are emitted.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        generation: Generation,
        crews: Sequence[tuple[Crew, Begin]],
        outputs: Mapping[int, WorkerOutput],
        *,
        screen: Screen,
        bus: Bus,
    ) -> None:
        self._loop = loop
        self._generation = generation
        self._crews = crews
        self._crew_of = {one.rank: crew for crew, order in crews for one in order.identities}
        identities = [one for _, order in crews for one in order.identities]
        self._tasks = {one.rank: one.task for one in identities}
        self._num_workers = sum(one.in_world for one in identities)
        self.names = names_of(identities)
        """What users read of the processes."""
        self._places = {
            one.rank: f"rank {one.rank} ({crew.facts.hostname}, {order.cluster[one.task.type][one.task.index]})"
            for crew, order in crews
            for one in order.identities
        }
        self._cause: Cause | None = None
        """Why the generation is being stopped."""
        self._outputs = outputs
        self._screen = screen
        self._bus = bus
        self._pids: dict[int, int] = {}
        self._exceptions: dict[int, str] = {}
        self._ends: dict[int, WorkerEnded] = {}
        """With the last words of workers whose output is shown on their own hosts."""
        self._barrier = pmi.Fence(self._num_workers)
        self._outcome: asyncio.Future[Outcome] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self.told_by: signal.Signals | None = None
        """The first signal that told this host or another one to stop; one that came last may have changed nothing."""

    async def run(self) -> Outcome:
        """Starts the workers, watches them until each has ended or could not be ended, and leaves nothing.

        Returns:
            How it ended; all output has been passed on, nothing has been reported yet.

        Raises:
            OSError: a worker of this host could not be started.
        """
        number = self._crews[0][1].identities[0].generation
        for crew, order in self._crews:
            self._bus.emit(HostJoined(crew.facts.hostname, number, len(slot_holders(order.identities))))
        self._bus.emit(GenerationBegan(number, self._num_workers))
        try:
            for crew, order in self._crews:
                crew.begin(order, self.hear)
            outcome = await self._outcome
        finally:
            await asyncio.gather(*(crew.finish() for crew, _ in self._crews))
            if self._timer is not None:
                self._timer.cancel()
            for output in self._outputs.values():
                output.end(time.monotonic())
        outcome = outcome.completed({rank: end.exit_code for rank, end in self._ends.items()})
        reason, step = "" if outcome.cause is None else cause_text(outcome.cause, self.names), self._generation.step
        self._bus.emit(GenerationEnded(number, step, outcome.exit_code, reason, outcome.has_failed))
        return outcome

    def witnesses(self) -> dict[int, Witness]:
        """What is known about each worker, for the report."""
        return {
            rank: Witness(
                host=crew.facts.hostname,
                pid=self._pids.get(rank, 0),
                last_words=self._outputs[rank].last_words or getattr(self._ends.get(rank), "last_words", ()),
            )
            for rank, crew in self._crew_of.items()
        }

    def stop(self, number: signal.Signals) -> None:
        """The launcher was told to stop."""
        self.told_by = self.told_by or number
        self._on(SignalReceived(number))

    def hear(self, report: Heard) -> None:
        """A crew tells what has happened on its host."""
        match report:
            case Started():
                self._started(report.rank, report.pid)
            case Wrote():
                self._wrote(report)
            case Spoke():
                self._said(report.rank, report.message)
            case Garbled(rank=rank, fault=fault):
                who = self.names.of(rank)
                self._say(f"{who} sent its agent something else than a message, which is ignored: {fault}")
            case Complaint(text=text):
                self._say(text)
            case Examined(rank=rank, state=state):
                host = self._crew_of[rank].facts.hostname
                self._say(f"{self.names.of(rank)} (pid {self._pids.get(rank, 0)} on {host}) {state}")
            case Fence():
                self._fenced(report)
            case Interrupt(signal=number):
                self.told_by = self.told_by or number
                self._on(SignalReceived(number, is_relayed=True))
            case HostLost() | WorkerEnded():
                self._ended(report)
            case ClockMeasured():
                self._bus.emit(report)

    def _started(self, rank: int, pid: int) -> None:
        host = self._crew_of[rank].facts.hostname
        if rank in self._pids:
            self._say(f"{self._tasks[rank]} runs again (pid {pid} on {host})")
        self._pids[rank] = pid
        self._bus.emit(WorkerStarted(rank, host, pid, str(self._tasks[rank])))

    def _wrote(self, report: Wrote) -> None:
        self._outputs[report.rank].feed(report.stream, report.data, time.monotonic())
        if self._screen.is_closed and not self._outcome.done():
            self._on(SignalReceived(signal.SIGPIPE))
        self._arm()

    def _said(self, rank: int, message: Message) -> None:
        if isinstance(message, OfRank):
            # A process outside of the world takes itself for rank 0 of a world of its own.
            self._bus.emit(message if message.rank == rank else structs.replace(message, rank=rank))
        elif isinstance(message, Failed):
            self._exceptions[rank] = message.first_line
        self._on(Said(rank, message))

    def _fenced(self, report: Fence) -> None:
        """Collects MPI's keys, and hands all of them to all when the last rank has come."""
        try:
            union = self._barrier.arrive(report.rank, report.keys)
        except ValueError as fault:
            self._say(f"MPI's key exchange is out of order: {fault}")
            return
        if union is not None:
            self._order(Release(union, is_last=True))

    def _ended(self, report: WorkerEnded | HostLost) -> None:
        if isinstance(report, WorkerEnded):
            self._ends[report.rank] = report
            event: RankEnded | HostLost = RankEnded(
                report.rank, report.exit_code, self._exceptions.pop(report.rank, "")
            )
        else:
            event = report
        self._bus.emit(event)
        self._on(event)

    def _order(self, order: Order) -> None:
        for crew, _ in self._crews:
            crew.obey(order)

    def _on(self, event: Input) -> None:
        for action in self._generation.on(event, time.monotonic()):
            self._act(action)
        self._arm()

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        self._screen.tick(now)
        for action in self._generation.tick(now):
            self._act(action)
        self._arm()

    def _arm(self) -> None:
        """Sets the timer to the earliest deadline."""
        deadlines = [self._generation.deadline, self._screen.deadline]
        due = min((deadline for deadline in deadlines if deadline is not None), default=None)
        if self._timer is not None:
            if due is not None and self._timer.when() == due:
                return
            self._timer.cancel()
            self._timer = None
        if due is not None and not self._outcome.done():
            self._timer = self._loop.call_at(due, self._tick)  # asyncio's clock is time.monotonic

    def _act(self, action: Action) -> None:
        match action:
            case Announce() | Examine() | TellDeath():
                self._tell(action)
            case RanksWaiting() | PreemptionBegan() | LastWorkBegan() | StuckFound():
                self._bus.emit(action)
            case Replace(rank=rank):
                self._crew_of[rank].obey(action)
            case Done(outcome=outcome):
                if not self._outcome.done():
                    self._outcome.set_result(outcome)
            case Terminate(ranks=ranks):
                takes_snapshots = self._generation.takes_snapshots
                why = report.why_text(self._cause, self._places, self.names, takes_snapshots=takes_snapshots)
                self._order(agent_messages.Terminate(ranks, why))
            case Kill():
                self._order(action)

    def _tell(self, action: Announce | Examine | TellDeath) -> None:
        match action:
            case Announce(cause=cause):
                self._cause = cause
                self._screen.show_all()
                if (text := report.stopping_text(cause, self._num_workers, self.names)) is not None:
                    self._bus.emit(StopBegan(text))
            case Examine(ranks=ranks, seconds=seconds):
                if seconds is not None:
                    self._screen.show_all()  # where all ranks hang in one place, too
                    self._bus.emit(HangFound(ranks, seconds, self.names.all_of(ranks)))
                self._order(agent_messages.Examine(ranks, quietly=seconds is None))
            case TellDeath():
                self._bus.emit(Notice(tuple(outlived_lines(action, self.witnesses()[action.end.rank]))))

    def _say(self, text: str) -> None:
        self._bus.emit(Notice((f"paceline: {text}",)))
