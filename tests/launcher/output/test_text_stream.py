import contextlib
import io
import os
import sys
from pathlib import Path

import pytest

from paceline.launcher.output.text_stream import TextOutput


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class LeftReader(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_terminal_is_coloured_unless_the_user_objects():
    assert TextOutput(Terminal(), {"TERM": "xterm"}).is_coloured
    plain = TextOutput(Terminal(), {"TERM": "xterm", "NO_COLOR": "1"})
    assert plain.is_live
    assert not plain.is_coloured
    assert not TextOutput(Terminal(), {"TERM": "dumb"}).is_live
    assert not TextOutput(io.StringIO(), {"TERM": "xterm"}).is_coloured


def test_a_pipe_is_coloured_if_the_user_says_so():
    """FORCE_COLOR, as CI sets it, was not read: of all tools in the log this one had no colours."""
    forced = TextOutput(io.StringIO(), {"FORCE_COLOR": "1"})
    assert forced.is_coloured
    assert not forced.is_live
    assert TextOutput(io.StringIO(), {"PACELINE_LIVE_LINE": "1"}).is_live
    assert not TextOutput(io.StringIO(), {"FORCE_COLOR": ""}).is_coloured
    assert not TextOutput(Terminal(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}).is_coloured


def test_what_the_encoding_lacks_becomes_a_question_mark():
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    TextOutput(stream, {}).write("5/5 ━━ done\n")
    assert buffer.getvalue() == b"5/5 ?? done\n"


def test_a_reader_that_left_closes_the_sink_without_an_error():
    sink = TextOutput(LeftReader(), {})
    assert not sink.is_closed
    sink.write("text")
    assert sink.is_closed
    sink.write("more")


def test_a_full_disk_is_told_once_and_its_room_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with (tmp_path / "output").open("w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        sink = TextOutput(stream, {})
        full = os.open("/dev/full", os.O_WRONLY)
        disk = os.dup(stream.fileno())
        os.dup2(full, stream.fileno())
        for _ in range(3):
            sink.write("lost\n" * 10_000)
        assert not sink.is_closed
        os.dup2(disk, stream.fileno())
        os.close(full)
        os.close(disk)
        sink.write("here again\n")
    assert (tmp_path / "output").read_text().endswith("here again\n")
    assert capsys.readouterr().err == (
        "paceline: stdout cannot be written (No space left on device): the workers' output is lost until it can be "
        "written again; the job continues\n"
    )


def test_a_stream_without_a_terminal_has_a_usual_width():
    assert TextOutput(io.StringIO(), {}).width == 80


def test_a_reader_that_pauses_is_waited_for_with_signs_of_life(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("paceline.launcher.output.text_stream._PAUSE_MILLISECONDS", 1)
    reader, writer = os.pipe()
    received = bytearray()
    num_signs = 0

    def live() -> None:
        nonlocal num_signs
        num_signs += 1
        if num_signs % 5 == 0:  # the reader goes on
            received.extend(os.read(reader, 1 << 16))

    text = "".join(f"line {number} ━━\n" for number in range(30_000))  # many times what a pipe holds
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        TextOutput(stream, {}, live).write(text)
    with os.fdopen(reader, "rb") as rest:
        received.extend(rest.read())
    assert received.decode() == text
    assert num_signs >= 5


def test_a_reader_that_leaves_while_it_is_waited_for_closes_the_sink(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("paceline.launcher.output.text_stream._PAUSE_MILLISECONDS", 1)
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    sink = TextOutput(stream, {}, lambda: os.close(reader))
    sink.write("x" * 1_000_000)
    assert sink.is_closed
    with contextlib.suppress(OSError):
        stream.close()


def test_a_stream_that_is_no_file_needs_no_signs_of_life():
    stream = io.StringIO()
    TextOutput(stream, {}, lambda: pytest.fail("it does not block")).write("x" * 5000)
    assert stream.getvalue() == "x" * 5000
