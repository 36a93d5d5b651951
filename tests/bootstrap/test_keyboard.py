"""A debugger, and `input()`: with one worker as in any Python program, with several in one line what to do."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

LIMIT_SECONDS = 150.0

SCRIPT = """
import sys

def ask():
    answer = 41
    if "input" in sys.argv:
        answer += int(input("how many more? "))
    elif "pdb" in sys.argv:
        import pdb
        pdb.set_trace()
    else:
        breakpoint()
    print("answer", answer)

ask()
"""


def _command(folder: Path, num_workers: int, how: str) -> Sequence[str]:
    (folder / "script.py").write_text(SCRIPT)
    return [sys.executable, "-m", "paceline", "run", "--workers", str(num_workers), "script.py", how]


@pytest.mark.parametrize(
    ("how", "typed"), [("input", "1\n"), pytest.param("breakpoint", "answer += 1\nc\n", marks=pytest.mark.proof)]
)
def test_one_worker_reads_what_is_piped_in(tmp_path: Path, how: str, typed: str) -> None:
    """stdin was the null device: `breakpoint()` ended the job with an EOFError."""
    ended = subprocess.run(
        _command(tmp_path, 1, how), input=typed, capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT_SECONDS
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "answer 42" in ended.stdout


def test_one_worker_is_debugged_at_the_terminal(tmp_path: Path) -> None:
    """Each line is typed when its prompt is there, as a user does."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        # The launcher leads the terminal's foreground, as under a shell.
        ["setsid", "--ctty", "--wait", *_command(tmp_path, 1, "breakpoint")],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=tmp_path,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(terminal)
    shown = b""
    give_up_at = time.monotonic() + LIMIT_SECONDS
    to_type = [b"answer += 1\n", b"p 'sum', answer\n", b"c\n"]
    try:
        while process.poll() is None and time.monotonic() < give_up_at:
            if select.select([controller], [], [], 0.1)[0]:
                try:
                    shown += os.read(controller, 1 << 16)
                except OSError:  # the last one has closed the terminal
                    break
            if to_type and shown.count(b"(Pdb)") > 3 - len(to_type):
                os.write(controller, to_type.pop(0))
        assert process.wait(max(0.1, give_up_at - time.monotonic())) == 0, shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(controller)
    assert b"('sum', 42)" in shown, shown.decode()
    assert b"answer 42" in shown, shown.decode()


AGAIN = """
import os, sys
from paceline.events.bus import bus
from paceline.events.worker_events import StepDone
if os.environ["PACELINE_GENERATION"] == "1":
    bus.emit(StepDone(0, 1, 0))  # upon which its agent starts the standby
    os._exit(1)
print("was a standby:", "tensorflow" in sys.modules)
print("typed", input())
"""


def test_a_standby_that_is_called_has_the_keyboard(tmp_path: Path) -> None:
    """Its stdin was the null device: `breakpoint()` worked until a restart, and ended the job with an EOFError then."""
    (tmp_path / "again.py").write_text(AGAIN)
    command = [
        sys.executable,
        "-m",
        "paceline",
        "run",
        "--workers",
        "1",
        "--max-restarts",
        "1",
        "--standby",
        "again.py",
    ]
    ended = subprocess.run(
        command, input="word\n", capture_output=True, text=True, cwd=tmp_path, timeout=2 * LIMIT_SECONDS
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "was a standby: True" in ended.stdout
    assert "typed word" in ended.stdout


@pytest.mark.parametrize(
    "how", ["input", pytest.param("breakpoint", marks=pytest.mark.proof), pytest.param("pdb", marks=pytest.mark.proof)]
)
def test_several_workers_say_what_to_do(tmp_path: Path, how: str) -> None:
    ended = subprocess.run(
        _command(tmp_path, 2, how), input="1\n", capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT_SECONDS
    )
    assert ended.returncode == 1
    said = [line for line in ended.stderr.splitlines() if line.endswith(" [no-keyboard]")]
    assert said, ended.stderr
    assert "`paceline run --workers 1 ...`" in said[-1]
    assert 'script.py", line ' in ended.stderr
