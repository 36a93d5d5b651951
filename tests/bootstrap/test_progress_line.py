"""Who measures for long says so: on a line that changes, or on few lines."""

import io

import pytest

from paceline.bootstrap.progress_line import ProgressLine


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Stands still until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def after(line: ProgressLine, clock: Clock, *seconds: float) -> None:
    for one in seconds:
        clock.now += one
        line.tick()


def test_a_pipe_gets_a_line_now_and_then() -> None:
    """A phase of some minutes said nothing after its first line."""
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine(stream, clock)
    line.tell("one thing")
    after(line, clock, 1.0)
    assert stream.getvalue() == ""
    after(line, clock, *[1.0] * 7)
    told = ["paceline: measuring one thing ... 2 s", "paceline: measuring one thing ... 7 s"]
    assert stream.getvalue().splitlines() == told
    line.tell("another")
    after(line, clock, *[1.0] * 4)
    assert stream.getvalue().splitlines() == [*told, "paceline: measuring another ... 4 s"]


def test_a_terminal_has_one_line() -> None:
    stream, clock = Terminal(), Clock()
    line = ProgressLine(stream, clock)
    line.tell("one thing")
    after(line, clock, 1.0, 1.0, 1.0)
    assert stream.getvalue() == "".join(f"\r\x1b[2Kpaceline: measuring one thing ... {n} s" for n in (2, 3))
    line.tell("")
    assert stream.getvalue().endswith("\r\x1b[2K")
    assert "\n" not in stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_what_is_soon_over_says_nothing(stream: io.StringIO) -> None:
    with ProgressLine(stream, Clock()) as line:
        line.tell("one thing")
    assert stream.getvalue() == ""
