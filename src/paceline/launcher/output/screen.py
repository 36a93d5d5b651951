"""The output of all workers on the screen: whole lines with their rank, and one live line, the chief's by default.

    [1] Found 8000 images                  finished lines, as they come
    [0] Epoch 1/3
    [0] 63/125 ━━━━━━━━━━──────── 1s       live: rewritten in place, taken away before anything else

In a terminal or a notebook the live line is drawn at most every `DRAW_INTERVAL_SECONDS`. A file or pipe has no place to
rewrite, so there an unfinished line is written as it stands, at most every `STATE_INTERVAL_SECONDS`, to show
that work goes on. Times are arguments; the caller calls `tick` at `deadline`.
"""

import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paceline.launcher.output.terminal_line import EMPTY_LINE, StyledLine, columns
from paceline.launcher.output.text_stream import TextOutput
from paceline.launcher.output.usual_lines import UsualLines
from paceline.rendezvous.agent_messages import Stream

SAME_TIME_SECONDS = 60.0
"""Ranks that import TensorFlow from a slow disk, or load data, are that far apart."""

_MAX_KEPT = 10_000

_STAMP = re.compile(
    r"^([IWEF])\d{4} \d\d:\d\d:[\d.]+ +\d+ (?=[\w./-]+:\d+\])"  # absl's: level, time, thread, then file and line
    r"|^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?"  # TensorFlow's older one, and that of Python's logging
)


@dataclass(slots=True)
class _Showings:
    """Those of one line, numbered from 0 in the order on the screen."""

    num_shown: int = 0
    num_forgotten: int = 0
    num_written: dict[int, int] = field(default_factory=dict)
    """By rank, the number of the showing that stands for its next one."""


class Folding:
    """Which lines of several ranks on stderr are one and the same: shown once, when the first rank writes it. Pure.

    All ranks run one script, so most of what they write there is N times the same: TensorFlow's start, warnings. Each
    *showing* of a line stands for one line of each rank:

        rank 1  hello            shown
        rank 0  hello            the same showing
        rank 0  hello            shown: rank 0 has written it twice
        rank 1  hello            the second showing

    So a line is on the screen as often as the rank that wrote it most often did, and no line is missing that one rank
    alone wrote. Ranks write it at about the same time: one that comes much later has news to tell, and is shown.

    Args:
        num_ranks: How many there are.
    """

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._showings: defaultdict[str, _Showings] = defaultdict(_Showings)
        self._order: deque[tuple[str, float]] = deque()
        """Line and time of each showing."""
        self._is_off = False

    def end(self) -> None:
        """From now on every line of every rank counts: something has gone wrong, and who says what is the question."""
        self._is_off = True

    def is_new(self, rank: int, text: str, now: float) -> bool:
        """Whether this line of `rank` is to be shown: no showing stands for it."""
        if self._num_ranks <= 1 or self._is_off:
            return True
        self._forget(now)
        key = _STAMP.sub(r"\1 ", text)
        showings = self._showings[key]
        number = max(showings.num_written.get(rank, 0), showings.num_forgotten)
        showings.num_written[rank] = number + 1
        if number < showings.num_shown:
            return False
        showings.num_shown += 1
        self._order.append((key, now))
        return True

    def _forget(self, now: float) -> None:
        while self._order:
            key, shown_at = self._order[0]
            if len(self._order) <= _MAX_KEPT and now - shown_at <= SAME_TIME_SECONDS:
                return
            self._order.popleft()
            showings = self._showings[key]
            showings.num_forgotten += 1
            if showings.num_forgotten == showings.num_shown:
                del self._showings[key]


DRAW_INTERVAL_SECONDS = 0.05
STATE_INTERVAL_SECONDS = 10.0
_HELD_UP_SECONDS = 2.0
"""A tick that comes so late was held up by a reader who pauses, and with it what the chief has written meanwhile."""
CHIEF = 0

_PREFIX_COLOURS = ("36", "33", "35", "32", "34", "31")


@dataclass(slots=True)
class _Live:
    """The live rank's unfinished line of one stream."""

    line: StyledLine = EMPTY_LINE
    shown: StyledLine = EMPTY_LINE
    show_at: float | None = None
    """When to show `line`; None when it is shown, or empty."""


class Screen:
    """Writes finished lines, and keeps the live line out of their way.

    Args:
        stdout: Where the workers' stdout goes.
        stderr: Where the workers' stderr and the launcher's own words go.
        names: See `name_ranks`.
        shows_all: Whether `UsualLines` are shown, too.
        live_rank: The rank whose unfinished line is shown: the chief, or the one that has the keyboard.
    """

    def __init__(
        self,
        stdout: TextOutput,
        stderr: TextOutput,
        names: Mapping[int, str] | None = None,
        *,
        shows_all: bool = False,
        live_rank: int = CHIEF,
    ) -> None:
        self._live_rank = live_rank
        self._usual = None if shows_all else UsualLines()
        self._sinks = {Stream.OUT: stdout, Stream.ERR: stderr}
        self._names: Mapping[int, str] = {}
        self._width = 1
        self.name_ranks(names or {})
        self._live = {Stream.OUT: _Live(), Stream.ERR: _Live()}
        self._drawn: Stream | None = None
        self._drawn_columns = 0

    def name_ranks(self, names: Mapping[int, str]) -> None:
        """By rank, what stands in brackets before its lines; a generation begins, and this comes before its first."""
        self._names = names
        # Lines of stdout are the script's own: who prints a result on every rank wants to see every rank's.
        self._foldings = {Stream.OUT: Folding(1), Stream.ERR: Folding(len(names))}
        self._width = max(map(len, names.values()), default=1)

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to show; None: nothing waits."""
        return min((live.show_at for live in self._live.values() if live.show_at is not None), default=None)

    @property
    def is_closed(self) -> bool:
        """Whether the user's end of stdout is gone."""
        return self._sinks[Stream.OUT].is_closed

    def show(self, rank: int, stream: Stream, lines: Sequence[StyledLine], current: StyledLine, now: float) -> None:
        """A worker's `stream` finished `lines`, and now stands at the unfinished `current`."""
        if lines:
            if rank == self._live_rank and self._drawn is stream:
                self._erase()  # one of the lines is the live one, finished
            sink = self._sinks[stream]
            if self._usual is not None and stream is Stream.ERR:
                lines = [line for line in lines if not self._usual.has(rank, line.plain)]
            new = [line for line in lines if self._foldings[stream].is_new(rank, line.plain, now)]
            self._write(sink, "".join(f"{self._prefixed(rank, line, sink)}\n" for line in new))
        if rank == self._live_rank:
            self._follow(stream, current, bool(lines), now)

    def show_all(self) -> None:
        """From now on every line of every rank, also what others have written, too (`Folding`)."""
        for folding in self._foldings.values():
            folding.end()

    def say(self, lines: Sequence[str]) -> None:
        """The launcher's own words."""
        self._write(self._sinks[Stream.ERR], "".join(f"{line}\n" for line in lines))

    def tick(self, now: float) -> None:
        """Shows what has become due."""
        for stream, live in self._live.items():
            if live.show_at is None or now < live.show_at:
                continue
            if now > live.show_at + _HELD_UP_SECONDS and not self._sinks[stream].is_live:
                live.show_at = now + STATE_INTERVAL_SECONDS  # the line may be whole by now; half of it would stay
            else:
                self._show_live(stream, live)

    def close(self) -> None:
        """Takes the live line away."""
        self._erase()

    def _follow(self, stream: Stream, current: StyledLine, finished: bool, now: float) -> None:
        live = self._live[stream]
        is_new = finished or not live.line.spans
        live.line = current
        if is_new:
            live.shown = EMPTY_LINE
            live.show_at = None
        if not current.spans:
            live.show_at = None
            return
        if current == live.shown:
            return
        if live.show_at is None:
            is_live = self._sinks[stream].is_live
            live.show_at = now + (DRAW_INTERVAL_SECONDS if is_live else STATE_INTERVAL_SECONDS)
            if is_live and is_new:
                self._show_live(stream, live)

    def _show_live(self, stream: Stream, live: _Live) -> None:
        live.show_at = None
        live.shown = live.line
        sink = self._sinks[stream]
        if not sink.is_live:
            self._write(sink, f"{self._prefixed(self._live_rank, live.line, sink)}\n")
            return
        if self._drawn is not stream:
            self._erase()
        sink.write((self._erasing(sink) if self._drawn else "") + self._live_text(stream))
        self._drawn = stream

    def _live_text(self, stream: Stream) -> str:
        sink = self._sinks[stream]
        room = sink.width - self._width - len("[] ") - 1  # the last column would wrap the cursor to the next row
        line = self._live[stream].line.cut(max(room, 0))
        self._drawn_columns = self._width + len("[] ") + columns(line.plain)
        return self._prefixed(self._live_rank, line, sink)

    def _erasing(self, sink: TextOutput) -> str:
        return sink.erasing(self._drawn_columns)

    def _erase(self) -> None:
        if self._drawn is not None:
            sink = self._sinks[self._drawn]
            sink.write(self._erasing(sink))
            self._drawn = None

    def _write(self, sink: TextOutput, text: str) -> None:
        """Writes whole lines, above the live line if both are on a terminal."""
        if not text:
            return
        if self._drawn is None or not sink.is_live:
            sink.write(text)
            return
        live_sink = self._sinks[self._drawn]
        erasing, live_text = self._erasing(live_sink), self._live_text(self._drawn)
        if live_sink is sink:  # in one piece, which does not flicker
            sink.write(erasing + text + live_text)
            return
        live_sink.write(erasing)
        sink.write(text)
        live_sink.write(live_text)

    def _prefixed(self, rank: int, line: StyledLine, sink: TextOutput) -> str:
        prefix = f"[{self._names[rank]:>{self._width}}]"
        if not sink.is_coloured:
            return f"{prefix} {line.plain}"
        return f"\x1b[{_PREFIX_COLOURS[rank % len(_PREFIX_COLOURS)]}m{prefix}\x1b[0m {line.ansi}"
