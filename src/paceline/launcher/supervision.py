"""The acting half of a generation: carries out what ``generation.py`` decides. An event loop, no decisions.

    workers ── messages, ends ──► Generation ── actions ──► signals, kills, words
       └────── output ──────────► WorkerOutput ──► Screen, log files
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence

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
from paceline.launcher.outcome import Outcome
from paceline.launcher.screen import Screen, Stream
from paceline.launcher.teardown import Teardown
from paceline.launcher.worker_output import WorkerOutput
from paceline.launcher.worker_process import WorkerListener, WorkerProcess
from paceline.rendezvous.channel import Message

_SILENCE_SECONDS = 0.5
"""How long output that is still on its way is waited for, once every process has ended."""


class Supervision(WorkerListener):
    """Watches the workers of one generation until it is done.

    Args:
        loop: The running event loop.
        generation: Decides.
        workers: By rank; already started.
        outputs: By rank.
        screen: Where the launcher's words and the live line go.
        teardown: Knows all processes of the job.
        note_end: Called with the process id of each worker that has ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        generation: Generation,
        workers: Sequence[WorkerProcess],
        outputs: Sequence[WorkerOutput],
        *,
        screen: Screen,
        teardown: Teardown,
        note_end: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._generation = generation
        self._workers = workers
        self._outputs = outputs
        self._screen = screen
        self._teardown = teardown
        self._note_end = note_end
        self._outcome: asyncio.Future[Outcome] = loop.create_future()
        self._silence = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> Outcome:
        """Until every worker has ended, or could not be ended; then nothing of the job is left.

        Returns:
            How it ended; all output has been passed on, nothing has been reported yet.
        """
        for worker in self._workers:
            worker.attach(self._loop, self)
        try:
            outcome = await self._outcome
            self._teardown.finish(_SILENCE_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._silence.wait(), _SILENCE_SECONDS)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for worker in self._workers:
                worker.detach(self._loop)
        now = time.monotonic()
        for output in self._outputs:
            for stream in Stream:
                output.end(stream, now)
        return outcome

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
        self._note_end(self._workers[rank].pid)
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


def witnesses(
    host: str, workers: Sequence[WorkerProcess], outputs: Sequence[WorkerOutput]
) -> Mapping[int, report.Witness]:
    """What is known about each worker, for the report."""
    return {
        worker.rank: report.Witness(host=host, pid=worker.pid, last_words=output.last_words)
        for worker, output in zip(workers, outputs, strict=True)
    }
