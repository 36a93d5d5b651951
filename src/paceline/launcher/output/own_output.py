"""What the workers of this host write, on this host's screen and in its log files: for agents that have a user."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from paceline.launcher.output.screen import Screen, Stream
from paceline.launcher.output.worker_output import LogFile, WorkerOutput


class OwnOutput:
    """Shows the output of some ranks of a job, one generation after the other.

    Args:
        loop: The running event loop.
        screen: Where it is shown.
        log_dir: Folder of the log files; None: none.
        lifetimes: Closes the log files.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, screen: Screen, log_dir: Path | None, lifetimes: ExitStack
    ) -> None:
        self._loop = loop
        self._screen = screen
        self._log_dir = log_dir
        self._lifetimes = lifetimes
        self._log_files: dict[int, LogFile] = {}
        self._outputs: dict[int, WorkerOutput] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, ranks: Sequence[int], hostname: str) -> None:
        """A generation begins in which this host has `ranks`."""
        self._screen.name_ranks({rank: f"{hostname} {rank}" for rank in ranks})
        self._outputs = {rank: WorkerOutput(rank, self._screen, self._log_file(rank)) for rank in ranks}

    def feed(self, rank: int, stream: Stream, data: bytes, now: float) -> None:
        """The worker wrote; no `data`: its stream has ended."""
        if data:
            self._outputs[rank].feed(stream, data, now)
        else:
            self._outputs[rank].end(stream, now)
        self._arm()

    def last_words(self, rank: int) -> tuple[str, ...]:
        """The last lines of its stderr."""
        return self._outputs[rank].last_words

    def say(self, lines: Sequence[str]) -> None:
        """Words of the launcher."""
        self._screen.say(lines)

    def end(self, now: float) -> None:
        """The generation has ended."""
        for output in self._outputs.values():
            for stream in Stream:
                output.end(stream, now)
        self._screen.close()

    def _log_file(self, rank: int) -> LogFile | None:
        if self._log_dir is None:
            return None
        if rank not in self._log_files:
            self._log_files[rank] = self._lifetimes.enter_context(LogFile(self._log_dir / f"job_{rank}.log"))
        return self._log_files[rank]

    def _arm(self) -> None:
        due = self._screen.deadline
        if due is not None and self._timer is None:
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._screen.tick(self._loop.time())
        self._arm()
