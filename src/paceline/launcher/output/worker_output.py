"""One worker's two streams on their way to the screen, to its log file, and into the report if it dies."""

import contextlib
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from paceline.launcher.output.screen import Screen, Stream
from paceline.launcher.output.styled_line import StyledLine
from paceline.launcher.output.terminal_line import TerminalLine

NUM_LAST_WORDS = 20
_MAX_LAST_WORD_CHARACTERS = 2000


class LogFile:
    """A worker's own file: its lines without rank and colours, both streams, as a terminal would show them.

    Made anew for each job. A disk that is full must not stop the training: the first failure to write ends
    the file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def __enter__(self) -> "LogFile":
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def write(self, lines: Sequence[StyledLine]) -> None:
        """Appends `lines` at once; nothing is buffered, so `tail -f` follows."""
        data = "".join(f"{line.plain}\n" for line in lines).encode("utf-8", "replace")
        while data and self._descriptor is not None:
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError:
                self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


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
        """The worker wrote `data`."""
        terminal = self._terminals[stream]
        self._pass_on(stream, terminal.feed(data), now)

    def end(self, stream: Stream, now: float) -> None:
        """Nothing more will come on `stream`."""
        self._pass_on(stream, self._terminals[stream].end(), now)

    def _pass_on(self, stream: Stream, lines: list[StyledLine], now: float) -> None:
        if lines and self._log_file is not None:
            self._log_file.write(lines)
        if stream is Stream.ERR:
            self._last_words.extend(line.plain for line in lines)
        self._screen.show(self._rank, stream, lines, self._terminals[stream].current, now)
