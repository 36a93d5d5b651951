"""What a terminal would show, checked with Keras's real bytes and with streams cut anywhere."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.launcher.output.terminal_line import MAX_LINE_CHARACTERS, TerminalLine

KERAS_BAR = (Path(__file__).parents[1] / "keras_progress_bar.bin").read_bytes()
"""What `keras.utils.Progbar` wrote to a pipe: five steps of a known total, then three of an unknown one."""

BAR = "━" * 20


def shown(data: bytes) -> tuple[list[str], str]:
    terminal = TerminalLine()
    return [line.plain for line in terminal.feed(data)], terminal.current.plain


def test_keras_progress_bar_becomes_its_final_lines():
    lines, current = shown(KERAS_BAR)
    assert lines == [f"5/5 {BAR} 0s 70ms/step - loss: 0.2000 - accuracy: 0.8000", "Epoch 2/2"]
    assert current == "      3/Unknown 0s 70ms/step - loss: 0.6111"


def test_keras_progress_bar_in_between_shows_one_state():
    second_step = KERAS_BAR.index(b"3/5") - 10
    lines, current = shown(KERAS_BAR[:second_step])
    assert lines == []
    assert current == f"2/5 {BAR} 0s 70ms/step - loss: 0.7500 - accuracy: 0.1000"


def test_keras_colours_are_kept_for_terminals():
    line = TerminalLine().feed(KERAS_BAR)[0]
    assert line.ansi.startswith("\x1b[1m5/5\x1b[0m \x1b[32m━")
    assert line.plain == "".join(text for _, text in line.spans)


@given(st.lists(st.integers(0, len(KERAS_BAR)), max_size=30))
def test_cuts_between_reads_change_nothing(cuts: list[int]):
    bounds = [0, *sorted(cuts), len(KERAS_BAR)]
    terminal = TerminalLine()
    lines = [line.plain for start, end in pairwise(bounds) for line in terminal.feed(KERAS_BAR[start:end])]
    assert (lines, terminal.current.plain) == shown(KERAS_BAR)


@pytest.mark.parametrize(
    ("data", "lines", "current"),
    [
        (b"plain\n", ["plain"], ""),
        (b"two\nlines\n", ["two", "lines"], ""),
        (b"\n\n", ["", ""], ""),
        (b"windows\r\n", ["windows"], ""),
        (b"a\tb  \n", ["a\tb  "], ""),
        (b"100%\r99%", [], "99%%"),
        (b"100%\r99%\x1b[K", [], "99%"),
        (b"abc\b\bX\n", ["aXc"], ""),
        (b"\b\b\bstart\n", ["start"], ""),
        (b"long text\r\x1b[2Kshort\n", ["short"], ""),
        (b"abcdef\x1b[3D\x1b[1K\n", ["    ef"], ""),
        (b"abc\x1b[2GX\n", ["aXc"], ""),
        (b"a\x1b[3Cb\n", ["a   b"], ""),
        (b"\x1b]0;title\x07text\n", ["text"], ""),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", ["link"], ""),
        (b"up\x1b[1Adown\x1b(B\x1b7\n", ["updown"], ""),
        (b"bell\x07\x00\x7f\n", ["bell"], ""),
        (b"bad \xff\xfe utf-8\n", ["bad \ufffd\ufffd utf-8"], ""),
        ("né".encode("latin-1") + b"\n", ["n\ufffd"], ""),
        (b"waits \x1b[3", [], "waits "),
    ],
)
def test_what_is_shown(data: bytes, lines: list[str], current: str):
    assert shown(data) == (lines, current)


@given(st.binary(max_size=300))
def test_any_bytes_are_shown_without_control_characters(data: bytes):
    terminal = TerminalLine()
    lines = [*terminal.feed(data), terminal.current]
    lines += terminal.end()
    for line in lines:
        assert not any(ord(character) < 32 and character != "\t" for character in line.plain)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=50))
def test_text_without_controls_is_kept_exactly(text: str):
    assert shown(f"{text}\n".encode()) == ([text], "")


def test_a_character_cut_in_two_waits_for_its_other_half():
    terminal = TerminalLine()
    first, second = "é".encode()[:1], "é".encode()[1:]
    assert terminal.feed(b"caf" + first) == []
    assert terminal.current.plain == "caf"
    assert [line.plain for line in terminal.feed(second + b"\n")] == ["café"]


def test_styles_add_up_until_reset_and_never_leak():
    line = TerminalLine().feed(b"\x1b[1m\x1b[31mred\x1b[0m plain\n")[0]
    assert line.spans == (("1;31", "red"), ("", " plain"))


def test_an_endless_line_is_cut_and_takes_bounded_memory():
    terminal = TerminalLine()
    pieces = [line.plain for _ in range(40) for line in terminal.feed(b"x" * 10_000)]
    assert {len(piece) for piece in pieces} == {MAX_LINE_CHARACTERS}
    assert sum(map(len, pieces)) + len(terminal.current.plain) == 400_000


def test_moves_cannot_make_a_line_endless():
    terminal = TerminalLine()
    for _ in range(50):
        terminal.feed(b"\x1b[999999Cx")
    assert len(terminal.current.plain) <= MAX_LINE_CHARACTERS


def test_an_endless_escape_sequence_is_given_up():
    terminal = TerminalLine()
    for _ in range(20):
        terminal.feed(b"\x1b]" + b"y" * 1000)
    assert [line.plain for line in terminal.feed(b"\nafter\n")][-1] == "after"


def test_the_end_of_the_stream_finishes_the_last_line():
    terminal = TerminalLine()
    terminal.feed(b"no newline")
    assert [line.plain for line in terminal.end()] == ["no newline"]
    assert terminal.end() == []
