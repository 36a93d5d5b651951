"""The output of workers: to the screen, to log files, and into the report of a failure."""

import asyncio
from collections import deque
from collections.abc import Sequence

from paceline.cluster.launched import WorkerIdentity
from paceline.launcher.output.screen import Screen
from paceline.launcher.output.terminal_line import StyledLine, TerminalLine
from paceline.launcher.output.worker_logs import LogFile, WorkerLogs
from paceline.rendezvous.agent_messages import Stream

NUM_LAST_WORDS = 30
_MAX_LAST_WORD_CHARACTERS = 2000


class WorkerOutput:
    """Takes the bytes of one worker and passes lines on.

    Args:
        rank: Whose output it is.
        screen: Shows the lines.
        log_file: Keeps them, if the user wants that.
    """

    def __init__(self, rank: int, screen: Screen, log_file: LogFile | None) -> None:
        self._rank = rank
        self._screen = screen
        self._log_file = log_file
        self._terminals = {stream: TerminalLine() for stream in Stream}
        self._last_words: deque[str] = deque(maxlen=NUM_LAST_WORDS)

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last lines of its stderr."""
        unfinished = self._terminals[Stream.ERR].current.plain
        lines = [*self._last_words, unfinished] if unfinished else self._last_words
        return tuple(line[:_MAX_LAST_WORD_CHARACTERS] for line in lines)[-NUM_LAST_WORDS:]

    def feed(self, stream: Stream, data: bytes, now: float) -> None:
        """The worker wrote `data`; nothing: the stream has ended."""
        terminal = self._terminals[stream]
        self._pass_on(stream, terminal.feed(data) if data else terminal.end(), now)

    def end(self, now: float) -> None:
        """Nothing more will come on either stream."""
        for stream in Stream:
            self.feed(stream, b"", now)

    def _pass_on(self, stream: Stream, lines: list[StyledLine], now: float) -> None:
        if lines and self._log_file is not None:
            self._log_file.write(line.plain for line in lines)
        if stream is Stream.ERR:
            self._last_words.extend(line.plain for line in lines)
        self._screen.show(self._rank, stream, lines, self._terminals[stream].current, now)


class OwnOutput:
    """Shows the output of some ranks of a job, one generation after the other.

    Args:
        loop: The running event loop.
        screen: Where it is shown.
        logs: Where it is kept.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, screen: Screen, logs: WorkerLogs) -> None:
        self._loop = loop
        self._screen = screen
        self._logs = logs
        self._outputs: dict[int, WorkerOutput] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, identities: Sequence[WorkerIdentity], hostname: str) -> None:
        """A generation begins in which this host has the workers `identities`.

        Raises:
            OSError: the log files cannot be made.
        """
        self._screen.name_ranks({one.rank: f"{hostname} {one.label}" for one in identities})
        self._logs.begin(identities[0].job_id, identities[0].generation, identities)
        self._outputs = {one.rank: WorkerOutput(one.rank, self._screen, self._logs.of(one.rank)) for one in identities}

    def feed(self, rank: int, stream: Stream, data: bytes, now: float) -> None:
        """The worker wrote; no `data`: its stream has ended."""
        self._outputs[rank].feed(stream, data, now)
        self._arm()

    def last_words(self, rank: int) -> tuple[str, ...]:
        """The last lines of its stderr."""
        return self._outputs[rank].last_words

    def show_all(self) -> None:
        """See `Screen.show_all`."""
        self._screen.show_all()

    def say(self, lines: Sequence[str]) -> None:
        """Words of the launcher."""
        self._screen.say(lines)
        self._logs.note(lines)

    def end(self, now: float) -> None:
        """The generation has ended."""
        for output in self._outputs.values():
            output.end(now)
        self._screen.close()

    def _arm(self) -> None:
        due = self._screen.deadline
        if due is not None and self._timer is None:
            self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._screen.tick(self._loop.time())
        self._arm()
