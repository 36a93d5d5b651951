"""One worker as seen by the agent: its process, its output, and its messages.

    agent                                worker (own process session; stdin empty, or the agent's own)
      out, err   ◄── pipes ───────────── stdout, stderr
      messages   ◄── socket pair ─────── PACELINE_AGENT_FD   (rendezvous/channel.py)
      PMI        ◄─► socket pair ──────► PACELINE_PMI_FD     (rendezvous/pmi.py)
      `ended`    ◄── a thread that waits for the process

The end of a process is passed on only after everything that it had said and written was: a traceback sent in
its last moment is the cause, not a guess from the exit code.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paceline.cluster import environment
from paceline.cluster.launched import STACKS_SIGNAL
from paceline.launcher.workers.crew import CrewListener
from paceline.launcher.workers.process_state import has_not_ended
from paceline.rendezvous.agent_messages import Garbled, Spoke, Stream, WorkerEnded, Wrote
from paceline.rendezvous.channel import QUESTION, decode
from paceline.wire.codec import GarbledError
from paceline.wire.frames import LineSplitter

_READ_BYTES = 1 << 16
_MAX_READS_AFTER_END = 64
"""A forked child that keeps writing must not keep the end of its worker from being noticed."""


@dataclass(frozen=True, slots=True)
class SpawnedWorker:
    """A process that is, or will be, a worker."""

    process: "subprocess.Popen[bytes]"
    """With pipes for stdout and stderr."""
    messages: socket.socket
    """The agent's end of the line of messages."""
    pmi: socket.socket
    """The agent's end of the PMI line; whoever serves it closes it."""

    def close(self) -> None:
        """Closes what connects this agent with it, for a process that nobody will listen to."""
        for end in (self.messages, self.pmi, self.process.stdout, self.process.stderr):
            if end is not None:
                end.close()


class WorkerProcess:
    """A running worker.

    Args:
        rank: Its rank.
        spawned: Its process.
    """

    def __init__(self, rank: int, spawned: SpawnedWorker) -> None:
        process = spawned.process
        assert process.stdout is not None
        assert process.stderr is not None
        self.rank = rank
        self.pmi = spawned.pmi
        self._process = process
        self._messages: socket.socket | None = spawned.messages
        self._is_told = False
        self._lines = LineSplitter()
        self._pipes = {Stream.OUT: process.stdout, Stream.ERR: process.stderr}
        self._detached = False
        self._sent: set[int] = set()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_silent(self) -> bool:
        """Whether both streams have ended, and the end of the process was told."""
        return not self._pipes and self._is_told

    def attach(
        self, loop: asyncio.AbstractEventLoop, listener: CrewListener, on_end: Callable[[], None] = lambda: None
    ) -> None:
        """Begins to tell `listener` what happens; `on_end` is called when the process has ended, listened to or not."""
        assert self._messages is not None
        self._messages.setblocking(False)
        loop.add_reader(self._messages, self._hear, loop, listener)
        for stream, pipe in self._pipes.items():
            os.set_blocking(pipe.fileno(), False)
            loop.add_reader(pipe, self._read, stream, loop, listener)
        arguments, name = (loop, listener, on_end), f"waits for process {self.pid}"
        threading.Thread(target=self._await_end, args=arguments, name=name, daemon=True).start()

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stops listening and closes what is open. A process that outlives SIGKILL ends unheard."""
        self._detached = True
        for stream in list(self._pipes):
            self._close_pipe(stream, loop)
        self._close_messages(loop)

    def was_sent(self, number: int) -> bool:
        """Whether this agent has sent that signal to the worker while it lived."""
        return number in self._sent

    def about_to_send(self, number: int) -> None:
        """To be called before a signal is sent; one that has ended by then was not ended by it."""
        if has_not_ended(self.pid):
            self._sent.add(number)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the worker's own process; nothing if it has ended."""
        self.about_to_send(number)
        with contextlib.suppress(OSError):
            self._process.send_signal(number)

    def ask_for_stacks(self) -> None:
        """Has the worker write the stacks of all its threads to stderr (``observe/failure.py``)."""
        with contextlib.suppress(OSError):
            self._process.send_signal(STACKS_SIGNAL)

    def ask_where(self) -> None:
        """Has the worker say its `Whereabouts`; one that cannot stays silent."""
        if self._messages is not None:
            with contextlib.suppress(OSError):
                self._messages.send(QUESTION)

    def hold_output(self, held: bool, loop: asyncio.AbstractEventLoop, listener: CrewListener) -> None:
        """Stops reading what the worker writes, or goes on with it."""
        for stream, pipe in self._pipes.items():
            if held:
                loop.remove_reader(pipe)
            else:
                loop.add_reader(pipe, self._read, stream, loop, listener)

    def _await_end(self, loop: asyncio.AbstractEventLoop, listener: CrewListener, on_end: Callable[[], None]) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(self._end, code, loop, listener, on_end)

    def _end(
        self, code: int, loop: asyncio.AbstractEventLoop, listener: CrewListener, on_end: Callable[[], None]
    ) -> None:
        on_end()
        if self._detached:  # its rank may be another process's by now
            return
        while self._messages is not None and self._hear(loop, listener):
            pass
        for stream in list(self._pipes):
            for _ in range(_MAX_READS_AFTER_END):
                if not self._read(stream, loop, listener):
                    break
        self._is_told = True
        listener(WorkerEnded(self.rank, code))

    def _read(self, stream: Stream, loop: asyncio.AbstractEventLoop, listener: CrewListener) -> bool:
        """Reads once; whether there may be more."""
        if stream not in self._pipes:
            return False
        try:
            data = os.read(self._pipes[stream].fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close_pipe(stream, loop)
        listener(Wrote(self.rank, stream, data))
        return bool(data)

    def _hear(self, loop: asyncio.AbstractEventLoop, listener: CrewListener) -> bool:
        """Reads messages once; whether there may be more."""
        if self._messages is None:
            return False
        try:
            data = self._messages.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close_messages(loop)
            return False
        try:
            for line in self._lines.feed(data):
                self._tell(line, listener)
        except GarbledError as fault:
            listener(Garbled(self.rank, str(fault)[:1000]))
        return True

    def _tell(self, line: bytes, listener: CrewListener) -> None:
        try:
            message = decode(line)
        except GarbledError as fault:
            listener(Garbled(self.rank, str(fault)[:1000]))
        else:
            listener(Spoke(self.rank, message))

    def _close_pipe(self, stream: Stream, loop: asyncio.AbstractEventLoop) -> None:
        pipe = self._pipes.pop(stream)
        loop.remove_reader(pipe)
        pipe.close()

    def _close_messages(self, loop: asyncio.AbstractEventLoop) -> None:
        connection, self._messages = self._messages, None
        if connection is not None:
            loop.remove_reader(connection)
            connection.close()


def spawn_worker(
    command: Sequence[str], variables: Mapping[str, str], stdin: int | None = subprocess.DEVNULL
) -> SpawnedWorker:
    """Starts a process with the environment `variables` and its two sockets.

    Args:
        command: What it runs.
        variables: Its environment.
        stdin: As `subprocess` takes it; none: it reads what this process would read.

    Raises:
        OSError: the system cannot start it.
    """
    with contextlib.ExitStack() as on_failure:
        messages, workers_messages = socket.socketpair()
        pmi, workers_pmi = socket.socketpair()
        on_failure.callback(messages.close)
        on_failure.callback(pmi.close)
        with workers_messages, workers_pmi:
            descriptors = (workers_messages.fileno(), workers_pmi.fileno())
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={
                    **variables,
                    environment.AGENT_FD: str(descriptors[0]),
                    environment.PMI_FD: str(descriptors[1]),
                },
                pass_fds=descriptors,
                start_new_session=True,
            )
        on_failure.pop_all()
    return SpawnedWorker(process, messages, pmi)
