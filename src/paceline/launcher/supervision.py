"""The acting half of a generation: carries out what ``generation.py`` decides. An event loop, no decisions.

workers ── messages, ends ──► Generation ── actions ──► signals, kills, words
   └────── output ──────────► WorkerOutput ──► Screen, log files
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Sequence

from paceline.launcher import report
from paceline.launcher.generation import (
    Action,
    Announce,
    Done,
    Event,
    Exited,
    Generation,
    KillAll,
    Said,
    SignalReceived,
    TellWaiting,
    Terminate,
)
from paceline.launcher.guard_line import GuardLine
from paceline.launcher.job_processes import JobProcesses
from paceline.launcher.outcome import Outcome
from paceline.launcher.report import Witness
from paceline.launcher.screen import Screen, Stream
from paceline.launcher.teardown import Teardown
from paceline.launcher.worker_output import WorkerOutput
from paceline.launcher.worker_process import WorkerListener, WorkerProcess
from paceline.rendezvous.channel import Message

_TEARDOWN_SECONDS = 0.5
"""How long processes that survive SIGKILL for a moment are waited for."""

_SILENCE_SECONDS = 0.5
"""How long output that is still on its way is waited for, once every process has ended."""


class Supervision(WorkerListener):
    """Watches the workers of one generation until it is done.

    Args:
        loop: The running event loop.
        generation: Decides.
        starters: By rank; each starts that rank's worker.
        outputs: By rank.
        screen: Where the launcher's words and the live line go.
        processes: All processes of the job.
        guard: Is told the process ids of workers.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        generation: Generation,
        starters: Sequence[Callable[[], WorkerProcess]],
        outputs: Sequence[WorkerOutput],
        *,
        screen: Screen,
        processes: JobProcesses,
        guard: GuardLine,
    ) -> None:
        self._loop = loop
        self._generation = generation
        self._starters = starters
        self._workers: list[WorkerProcess] = []
        self._outputs = outputs
        self._screen = screen
        self._processes = processes
        self._teardown = Teardown(processes)
        self._guard = guard
        self._outcome: asyncio.Future[Outcome] = loop.create_future()
        self._silence = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> Outcome:
        """Starts the workers, watches them until each has ended or could not be ended, and leaves nothing.

        Returns:
            How it ended; all output has been passed on, nothing has been reported yet.

        Raises:
            OSError: a worker could not be started.
        """
        try:
            for start in self._starters:
                worker = start()
                self._workers.append(worker)
                self._processes.worker_started(worker.pid)
                self._guard.worker_started(worker.pid)
            for worker in self._workers:
                worker.attach(self._loop, self)
            return await self._outcome
        finally:
            self._teardown.finish(_TEARDOWN_SECONDS)
            if self._outcome.done():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._silence.wait(), _SILENCE_SECONDS)
            if self._timer is not None:
                self._timer.cancel()
            self._end_output()

    def witnesses(self, host: str) -> dict[int, Witness]:
        """What is known about each worker, for the report."""
        return {
            worker.rank: Witness(host=host, pid=worker.pid, last_words=self._outputs[worker.rank].last_words)
            for worker in self._workers
        }

    def receive_signal(self, number: signal.Signals) -> None:
        """The launcher was told to stop."""
        self._on(SignalReceived(number))

    def wrote(self, rank: int, stream: Stream, data: bytes) -> None:
        """Passes output on."""
        now = time.monotonic()
        if data:
            self._outputs[rank].feed(stream, data, now)
        else:
            self._outputs[rank].end(stream, now)
        if all(worker.is_silent for worker in self._workers):
            self._silence.set()
        if self._screen.is_closed and not self._outcome.done():
            self._on(SignalReceived(signal.SIGPIPE))
        self._arm()

    def said(self, rank: int, message: Message) -> None:
        """Passes a message on."""
        self._on(Said(rank, message))

    def garbled(self, rank: int, fault: ValueError) -> None:
        """Tells the user; the job goes on."""
        self._say(f"rank {rank} sent its agent something else than a message, which is ignored: {fault}")

    def ended(self, rank: int, exit_code: int) -> None:
        """Passes the end on."""
        self._processes.worker_ended(self._workers[rank].pid)
        self._guard.worker_ended(self._workers[rank].pid)
        self._on(Exited(rank, exit_code))

    def _on(self, event: Event) -> None:
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
            case Announce(cause=cause):
                text = report.stopping_text(cause, len(self._workers))
                if text is not None:
                    self._say(text)
            case TellWaiting(waiting=waiting, missing=missing, seconds=seconds):
                self._say(report.waiting_text(waiting, missing, seconds))
            case Terminate(ranks=ranks):
                self._teardown.survey()  # while parents still lead to their children
                for rank in ranks:
                    self._workers[rank].send_signal(signal.SIGTERM)
            case KillAll():
                self._teardown.kill()
            case Done(outcome=outcome):
                if not self._outcome.done():
                    self._outcome.set_result(outcome)

    def _say(self, text: str) -> None:
        self._screen.say([f"paceline: {text}"])

    def _end_output(self) -> None:
        for worker in self._workers:
            worker.detach(self._loop)
            for stream in Stream:
                self._outputs[worker.rank].end(stream, time.monotonic())
