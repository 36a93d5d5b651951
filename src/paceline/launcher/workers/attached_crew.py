"""The crew of one that an agent attaches to: the worker that was started by hand, and has started this process.

Nobody here sees its exit code, for it is no child: it says that it fails or leaves, or it is gone without a word.
"""

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable

from paceline.cluster.launched import STACKS_SIGNAL
from paceline.launcher.workers.crew import UNSEEN_EXIT, Crew, CrewListener
from paceline.launcher.workers.process_state import Standstill, is_stopped, process_state
from paceline.rendezvous.agent_messages import (
    Begin,
    Examine,
    Examined,
    Fence,
    HostFacts,
    Kill,
    Order,
    Refused,
    Release,
    Replace,
    Report,
    Spoke,
    Started,
    Terminate,
    WorkerEnded,
)
from paceline.rendezvous.channel import QUESTION, Attach, Attached, Failed, Finishing, Left, Stopped, decode
from paceline.rendezvous.pmi import PmiService
from paceline.rendezvous.waiting import one_line
from paceline.wire.codec import GarbledError
from paceline.wire.frames import LineSplitter
from paceline.wire.frames import line as line_of

KILL_AFTER_SECONDS = 2.0
"""How long after SIGTERM comes SIGKILL: TensorFlow's multi-worker runtime swallows the first."""

_FAILED_WORKER_SECONDS = 5.0
"""How long after the job's grace (2 s, `generation.py`) a worker that has failed is ended: most end by themselves."""

CANNOT_BE_ENDED = (
    "paceline: the process of this rank does not end, not even by SIGKILL. If it is process 1 of a container, "
    "start the container with an init process (docker run --init). [not-ended]"
)

_LOOK_SECONDS = 0.5
_HURRIED_LOOK_SECONDS = 0.02
_READ_BYTES = 1 << 16


class AttachedCrew(Crew):
    """Watches and ends one worker, this process's parent: a signal can never reach another process with its number.

    Args:
        loop: The running event loop.
        attach: What the worker has asked for.
        line: To the worker.
        pmi: On which its MPI asks for PMI-1.
        facts: Of this host.
        say: Prints a line on the worker's terminal.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        attach: Attach,
        line: socket.socket,
        pmi: socket.socket,
        facts: HostFacts,
        say: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._attach = attach
        self._line = line
        self._lines = LineSplitter()
        self._pmi_socket = pmi
        self._facts = facts
        self._say = say
        self._who = f"rank {attach.rank} ({facts.hostname})"
        self._pmi: PmiService | None = None
        self._listener: CrewListener | None = None
        self._standstill: Standstill | None = None
        self._failed: Failed | None = None
        self._is_finishing = False
        self._sent: signal.Signals | None = None
        """The last signal that this agent has sent."""
        self._asked_at = 0.0
        """When that was SIGTERM."""
        self._next_look: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._exit_code: int | None = None
        """How it ended; None: it is still a member."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when the worker has left or ended."""
        self.is_over = asyncio.Event()
        """The worker is gone, or has left and needs nothing more of this process."""
        line.setblocking(False)
        loop.add_reader(line, self._hear)
        self._look()

    @property
    def facts(self) -> HostFacts:
        """See `Crew.facts`."""
        return self._facts

    @property
    def has_ended(self) -> bool:
        """Whether the worker has left or ended."""
        return self._exit_code is not None

    def refuse(self, refused: Refused) -> None:
        """Tells the worker that it does not join."""
        self._tell(refused)

    def begin(self, order: Begin, listener: CrewListener) -> None:
        """See `Crew.begin`: the worker, which waits for it, runs on."""
        [identity] = order.identities
        self._listener = listener
        self._pmi = PmiService(
            self._loop,
            self._pmi_socket,
            identity,
            on_barrier=lambda keys: listener(Fence(identity.rank, keys)),
            on_fault=lambda fault: self._say(f"paceline: {self._who} {fault}. Its MPI cannot start"),
        )
        self._pmi.start()
        self._tell(Attached(identity))
        listener(Started(identity.rank, self._attach.worker_pid))
        if self._exit_code is not None:  # while the others were still awaited
            self._loop.call_soon(listener, WorkerEnded(identity.rank, self._exit_code))
        if self._attach.hang_timeout_seconds is not None:
            self._standstill = Standstill(self._attach.hang_timeout_seconds)

    def obey(self, order: Order) -> None:
        """See `Crew.obey`."""
        match order:
            case Release(keys=keys) if self._pmi is not None:
                self._pmi.release(keys)
            case Terminate(ranks=ranks, why=why) if self._attach.rank in ranks:
                # One that has failed ends by itself, after its exit handlers and with its own code; `Kill` bounds the
                # time. Its user reads `why` now: later the terminal is the shell's again.
                if not self._has_just_left() and self._failed is None:
                    self._say(one_line(f"paceline: {self._who} {why}"))
                    self._signal(signal.SIGTERM)
            case Examine(ranks=ranks, quietly=quietly) if self._attach.rank in ranks and self._exit_code is None:
                self._examine(quietly=quietly)
            case Kill():
                self._kill()
            case Replace():  # only processes outside of the world are replaced, and none of them is started by hand
                raise AssertionError(order)

    def _examine(self, *, quietly: bool) -> None:
        rank, pid = self._attach.rank, self._attach.worker_pid
        with contextlib.suppress(OSError):
            self._line.send(QUESTION)
        if quietly:
            return
        if is_stopped(pid):
            self._report(Spoke(rank, Stopped()))
        state = process_state(pid)
        self._report(Examined(rank, state))
        self._say(f"paceline: no step for too long; {self._who}, process {pid}, {state}; its stacks:")
        self._signal(STACKS_SIGNAL)

    def _kill(self) -> None:
        """The worker first has its time to end by itself, or by the SIGTERM that it was sent."""
        if self._ending is None and self._exit_code is None:
            self._ending = self._loop.create_task(self._end_worker())

    def _report(self, report: Report) -> None:
        if self._listener is not None:
            self._listener(report)

    async def finish(self) -> None:
        """See `Crew.finish`. A worker that has left is its user's own affair."""
        if self._exit_code is None:
            self._kill()
            await self.is_over.wait()

    @property
    def shows_own_output(self) -> bool:
        """See `Crew.shows_own_output`."""
        return True

    def close(self) -> None:
        """The job has ended."""
        if self._pmi is not None:
            self._pmi.close()

    def _tell(self, verdict: Attached | Refused) -> None:
        with contextlib.suppress(OSError):  # it is gone, and a look will say so
            self._line.sendall(line_of(verdict))

    def _hear(self) -> None:
        try:
            data = self._line.recv(_READ_BYTES)
            lines = self._lines.feed(data)
        except BlockingIOError:
            return
        except (OSError, GarbledError):
            data, lines = b"", []
        for line in lines:
            with contextlib.suppress(GarbledError):  # a line that means nothing says nothing about the worker
                self._hear_line(line)
        if not data:  # most likely it is about to be gone
            self._loop.remove_reader(self._line)
            self._look_in(_HURRIED_LOOK_SECONDS)
            if self._listener is None:  # it waits for the others no more, whether or not it lives on
                self._ended(UNSEEN_EXIT)

    def _hear_line(self, line: bytes) -> None:
        message = decode(line)
        self._is_finishing = self._is_finishing or isinstance(message, Finishing)
        if isinstance(message, Failed):
            self._failed = message
        if self._exit_code is None:
            self._report(Spoke(self._attach.rank, message))
        if isinstance(message, Left):
            self._ended(0)

    def _has_just_left(self) -> bool:
        """Whether the worker owes nothing more, although the loop may not have come to what it has said last."""
        while self._exit_code is None and select.select([self._line], [], [], 0)[0]:
            before = self._line.recv(1, socket.MSG_PEEK)
            self._hear()
            if not before:
                break
        return self._exit_code is not None

    def _look(self) -> None:
        if self.is_over.is_set():
            return
        if os.getppid() != self._attach.worker_pid:  # an orphan gets another parent at once
            # First what is there to read: a process that was stopped and continued has its timers run before that.
            self._next_look = self._loop.call_later(0.0, self._bury)
        elif self._exit_code is not None and (self._pmi is None or not self._pmi.is_needed):
            self.is_over.set()
        else:
            is_hurried = self._exit_code is not None or self._ending is not None
            self._look_in(_HURRIED_LOOK_SECONDS if is_hurried else _LOOK_SECONDS)
            self._look_for_standstill()

    def _look_in(self, seconds: float) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        self._next_look = self._loop.call_later(seconds, self._look)

    def _look_for_standstill(self) -> None:
        if self._standstill is not None:
            stopped = {self._attach.rank} if is_stopped(self._attach.worker_pid) else set()
            for rank in self._standstill.overdue(stopped, self._loop.time()):
                self._report(Spoke(rank, Stopped()))

    def _bury(self) -> None:
        with contextlib.suppress(OSError):
            self._has_just_left()  # its last words
        self._loop.remove_reader(self._line)
        if self._failed is not None:
            self._ended(self._failed.exit_code)
        elif self._is_finishing and self._pmi is not None and self._pmi.finished:
            self._hear_line(line_of(Left()))  # what it did not come to say
        else:
            self._ended(UNSEEN_EXIT if self._sent is None else -self._sent)
        self.is_over.set()

    def _ended(self, code: int) -> None:
        if self._exit_code is None:
            self._exit_code = code
            self._report(WorkerEnded(self._attach.rank, code))
            self.on_end()
            self._look_in(0.0)

    async def _end_worker(self) -> None:
        if self._sent is not signal.SIGTERM:
            if self._failed is not None:
                await asyncio.sleep(_FAILED_WORKER_SECONDS)
                if os.getppid() == self._attach.worker_pid:
                    held_up = "a thread or an exit handler of the script holds it up"
                    self._say(f"paceline: {self._who} has failed and does not end, so it is stopped: {held_up}")
            self._signal(signal.SIGTERM)
        # From the first signal on, whenever that was: a process with two pending ends by the harder one, and the shell
        # then sees 137 instead of 143.
        await asyncio.sleep(self._asked_at + KILL_AFTER_SECONDS - self._loop.time())
        self._signal(signal.SIGKILL)
        await asyncio.sleep(KILL_AFTER_SECONDS)
        if not self.is_over.is_set():
            self._say(CANNOT_BE_ENDED)
            self.is_over.set()

    def _signal(self, number: signal.Signals) -> None:
        if os.getppid() == self._attach.worker_pid:
            if number is not STACKS_SIGNAL:
                self._sent, self._asked_at = number, self._loop.time()
            with contextlib.suppress(ProcessLookupError):  # it has ended since, and its own parent knows
                os.kill(self._attach.worker_pid, number)
