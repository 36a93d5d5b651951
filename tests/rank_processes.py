"""The processes of a test's world, and the thread of the test process that watches them (see `ranks.py`).

The thread is what the agent is to a launched worker: it answers PMI, reads what the ranks print and tell, and notices
when one is gone.
"""

import os
import selectors
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

import psutil

from paceline.cluster import environment
from paceline.rendezvous.channel import Failed, Message, decode
from paceline.rendezvous.pmi import Fence, PmiSession

_AFTER_A_FAILURE_SECONDS = 10.0
_TICK_SECONDS = 0.05
_READ_BYTES = 1 << 16
_DYING_SECONDS = 60.0


@dataclass(frozen=True)
class RankResult:
    """How one rank ended."""

    rank: int
    pid: int
    exit_code: int
    """As `subprocess` gives it: negative for a signal."""
    timed_out: bool
    """It was still alive at the deadline, and was killed."""
    stdout: str
    stderr: str
    messages: tuple[Message, ...]
    """What it told its watcher (see `paceline.rendezvous.channel`)."""

    @property
    def failure(self) -> Failed | None:
        """The exception that the bootstrap reported, if it did."""
        return next((message for message in self.messages if isinstance(message, Failed)), None)

    def __str__(self) -> str:
        ended = "killed at the deadline" if self.timed_out else f"exit code {self.exit_code}"
        told = f"\n--- told its watcher\n{self.failure.traceback or self.failure.exception}" if self.failure else ""
        return f"rank {self.rank}: {ended}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}{told}"


class _Received:
    """What has come out of one end of a pipe or socket so far."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False

    def __str__(self) -> str:
        return self.data.decode(errors="replace")


class _Rank:
    """A process and this end of everything that connects to it."""

    def __init__(self, rank: int, process: "subprocess.Popen[bytes]", session: PmiSession) -> None:
        self.rank = rank
        self.process = process
        self.session = session
        self.stdout = _Received()
        self.stderr = _Received()
        self.told = _Received()
        self.asked = _Received()
        self.timed_out = False


class Ranks:
    """A running world; make it with `start_ranks`."""

    def __init__(self, size: int) -> None:
        self.store_name = f"kvs_test_{uuid.uuid4().hex[:16]}"
        """Name of this world's key-value store; MPICH names its shared-memory segments after it."""
        self._size = size
        self._fence = Fence(size)
        self._ranks: list[_Rank] = []
        self._pmi: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._news = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._watch, name="ranks", daemon=True)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes, in rank order."""
        return tuple(rank.process.pid for rank in self._ranks)

    def wait_for_output(self, rank: int, text: str, *, timeout_seconds: float = 60.0) -> None:
        """Returns once `rank` has printed `text` on its standard output.

        Raises:
            AssertionError: it ended, or the time was over, before it did.
        """
        one = self._ranks[rank]
        with self._news:
            self._news.wait_for(lambda: text in str(one.stdout) or one.stdout.ended, timeout_seconds)
            assert text in str(one.stdout), f"rank {rank} did not print {text!r}: {self._result(one)}"

    def kill(self, *ranks: int) -> None:
        """Kills these ranks (all without arguments) with SIGKILL, and what they have started."""
        for one in self._ranks:
            if (not ranks or one.rank in ranks) and one.process.poll() is None:
                _kill_tree(one.process.pid)

    def wait(self, *, timeout_seconds: float) -> list[RankResult]:
        """Waits for all ranks to end; those that have not by the deadline are killed."""
        deadline = time.monotonic() + timeout_seconds
        with self._news:
            while (alive := self._alive()) and (left := deadline - time.monotonic()) > 0:
                if any(one.process.poll() not in (None, 0) for one in self._ranks):
                    deadline = min(deadline, time.monotonic() + _AFTER_A_FAILURE_SECONDS)
                self._news.wait(min(left, _TICK_SECONDS))
        for one in alive:
            one.timed_out = one.process.poll() is None
        self.kill()
        for one in self._ranks:
            one.process.wait(_DYING_SECONDS)
        self._drain()
        return [self._result(one) for one in self._ranks]

    def add(self, command: list[str], variables: Mapping[str, str]) -> None:
        """Starts the next rank."""
        rank = len(self._ranks)
        pmi, its_pmi = socket.socketpair()
        line, its_line = socket.socketpair()
        with its_pmi, its_line:
            descriptors = {
                environment.PMI_FD: str(its_pmi.fileno()),
                environment.AGENT_FD: str(its_line.fileno()),
            }
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**variables, **descriptors},
                pass_fds=(its_pmi.fileno(), its_line.fileno()),
            )
        session = PmiSession(rank=rank, size=self._size, store_name=self.store_name)
        one = _Rank(rank, process, session)
        self._ranks.append(one)
        self._pmi[rank] = pmi
        assert process.stdout is not None
        assert process.stderr is not None
        self._read_into(process.stdout, one.stdout)
        self._read_into(process.stderr, one.stderr)
        self._read_into(line, one.told)
        self._read_into(pmi, one.asked, lambda: self._answer(one))

    def watch(self) -> None:
        """Begins to serve the ranks that were added."""
        self._thread.start()

    def close(self) -> None:
        """Ends whatever is left."""
        self.kill()
        for one in self._ranks:
            one.process.wait(_DYING_SECONDS)
        self._drain()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _alive(self) -> list[_Rank]:
        return [one for one in self._ranks if one.process.poll() is None]

    def _result(self, one: _Rank) -> RankResult:
        lines = bytes(one.told.data).splitlines()
        return RankResult(
            rank=one.rank,
            pid=one.process.pid,
            exit_code=one.process.poll() or 0,
            timed_out=one.timed_out,
            stdout=str(one.stdout),
            stderr=str(one.stderr),
            messages=tuple(decode(line) for line in lines),
        )

    # What the thread does.

    def _read_into(
        self, source: BinaryIO | socket.socket, received: _Received, then: Callable[[], None] = lambda: None
    ) -> None:
        self._selector.register(source, selectors.EVENT_READ, (received, then))

    def _watch(self) -> None:
        while self._selector.get_map() and not self._stopping:
            self._tick(_TICK_SECONDS)

    def _tick(self, timeout_seconds: float) -> bool:
        """Reads what is there; whether there was something."""
        events = self._selector.select(timeout_seconds)
        for key, _ in events:
            received, then = key.data
            data = b""
            with suppress(OSError):  # a socket of a rank that was killed
                data = os.read(key.fd, _READ_BYTES)
            with self._news:
                received.data += data
                received.ended = not data
                if data:
                    then()
                else:
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                self._news.notify_all()
        return bool(events)

    def _drain(self) -> None:
        """Stops the thread and reads the rest that ended ranks have left in their pipes."""
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join()
        while self._selector.get_map() and self._tick(0):
            pass

    def _answer(self, one: _Rank) -> None:
        *lines, one.asked.data[:] = bytes(one.asked.data).split(b"\n")
        for line in lines:
            reply = one.session.answer(line.decode() + "\n")
            if reply is not None:
                self._send(one.rank, reply)
                continue
            keys = self._fence.arrive(one.rank, one.session.pending)
            if keys is not None:
                for other in self._ranks:
                    self._send(other.rank, other.session.release(keys))

    def _send(self, rank: int, text: str) -> None:
        with suppress(OSError):  # it is gone
            self._pmi[rank].sendall(text.encode())


def _kill_tree(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
