"""What a job looks like in a terminal (a pseudo-terminal) and in a pipe, with Keras's real progress bar."""

import fcntl
import os
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.launcher.conftest import LIMIT_SECONDS

from paceline.launcher.output.terminal_line import TerminalLine

pytestmark = pytest.mark.processes

KERAS_BAR = Path(__file__).parent / "keras_progress_bar.bin"
BAR = "━" * 20

SCRIPT = f"""
import fcntl, os, struct, termios, time

def until_read():
    # Lines of two pipes come in the order in which the agent reads them.
    while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, bytes(4)))[0]:
        time.sleep(0.001)

data = open({str(KERAS_BAR)!r}, "rb").read()
middle = data.index(b"4/5") - 5
if os.environ["PACELINE_RANK"] == "0":
    os.write(1, data[:middle])
    until_read()
    open("bar", "w").close()
    while not os.path.exists("said"):
        time.sleep(0.01)
    os.write(1, data[middle:])
else:
    while not os.path.exists("bar"):
        time.sleep(0.01)
    print("a line from rank 1", flush=True)
    until_read()
    open("said", "w").close()
"""
"""Rank 1 speaks while the chief's bar stands at step 3 of 5."""


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal of 60 columns."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    yield ours, theirs
    os.close(ours)


def read_all(descriptor: int) -> bytes:
    data = b""
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            return data
        if not piece:
            return data
        data += piece


def test_one_bar_in_place_and_other_workers_lines_above_it(start, terminal):
    ours, theirs = terminal
    job = start(SCRIPT, stdout=theirs, variables={"TERM": "xterm"})
    os.close(theirs)
    data = read_all(ours)
    assert job.process.wait(LIMIT_SECONDS) == 0
    screen = TerminalLine()
    rows = [line.plain for line in screen.feed(data)]
    assert rows[1:] == [
        "[1] a line from rank 1",
        f"[0] 5/5 {BAR} 0s 70ms/step - loss: 0.2000 - accuracy: 0.8000",
        "[0] Epoch 2/2",
        "[0]       3/Unknown 0s 70ms/step - loss: 0.6111",
    ]
    assert screen.current.plain == ""
    # The bar stood below the other worker's line, cut to the width, before it went on.
    after_line = data.split(b"a line from rank 1\r\n", 1)[1]
    redrawn = TerminalLine()
    redrawn.feed(after_line.split(b"\x1b[K", 1)[0])
    assert redrawn.current.plain == f"[0] 3/5 {BAR} 0s 70ms/step - loss: 0.6111 -"
    assert b"\x1b[36m[0]" in data


def test_no_color_and_dumb_terminals_get_no_escape_sequences(start, terminal):
    ours, theirs = terminal
    job = start(SCRIPT, stdout=theirs, variables={"TERM": "dumb"})
    os.close(theirs)
    data = read_all(ours)
    assert job.process.wait(LIMIT_SECONDS) == 0
    assert b"\x1b" not in data
    assert b"\b" not in data


def test_a_pipe_gets_plain_finished_lines(run):
    finished = run(SCRIPT)
    assert finished.stdout.splitlines() == [
        "[1] a line from rank 1",
        f"[0] 5/5 {BAR} 0s 70ms/step - loss: 0.2000 - accuracy: 0.8000",
        "[0] Epoch 2/2",
        "[0]       3/Unknown 0s 70ms/step - loss: 0.6111",
    ]


def test_a_log_file_gets_what_a_terminal_would_have_shown(run, tmp_path: Path):
    run(SCRIPT, log_dir=str(tmp_path / "logs"))
    assert (tmp_path / "logs" / "latest" / "job_0.log").read_text().splitlines()[1:] == [
        f"5/5 {BAR} 0s 70ms/step - loss: 0.2000 - accuracy: 0.8000",
        "Epoch 2/2",
        "      3/Unknown 0s 70ms/step - loss: 0.6111",
    ]
