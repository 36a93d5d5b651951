"""`--debug-rank` gives one of several workers the keyboard, `--debug-port` a debugger; the others go on."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.debugging import debugged
from paceline.cluster.job_options import JobOptions
from ports import HoldPorts
from programs import start_python

LIMIT_SECONDS = 150.0

SCRIPT = """
import sys
import paceline

def ask():
    answer = 41
    if "input" in sys.argv:
        if paceline.rank() == 1:
            answer += int(input("how many more? "))
    elif "pdb" in sys.argv:
        import pdb
        pdb.set_trace()
    elif "breakpoint" in sys.argv:
        breakpoint()
    print("answer", answer)

ask()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("how", "typed"),
    [
        pytest.param("input", "1\n", marks=pytest.mark.proof),
        ("breakpoint", "answer += 1\nc\n"),
        pytest.param("pdb", "answer += 1\nc\n", marks=pytest.mark.proof),
    ],
)
def test_the_rank_that_is_debugged_has_the_keyboard(tmp_path: Path, how: str, typed: str) -> None:
    """With several workers nobody had it, and what fails on rank 1 alone could not be looked at."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "paceline", "run", "--workers", "3", "--debug-rank", "1", "script.py", how]
    ended = subprocess.run(
        command, input=typed, capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = [line for line in ended.stdout.splitlines() if "answer 4" in line and "->" not in line]
    assert sorted(line.split()[0] + line.split()[-1] for line in said) == ["[0]41", "[1]42", "[2]41"], ended.stdout


@pytest.mark.processes
def test_who_leaves_the_debugger_is_not_told_that_there_is_no_keyboard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "paceline", "run", "--workers", "2", "--debug-rank", "1", "script.py", "pdb"]
    ended = subprocess.run(
        command, input="q\n", capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT_SECONDS, check=False
    )
    assert ended.returncode == 1
    assert "BdbQuit" in ended.stderr
    assert "[no-keyboard]" not in ended.stderr


def test_a_rank_that_is_debugged_is_not_taken_for_one_that_hangs() -> None:
    said: list[str] = []
    options = debugged(JobOptions(debug_port=5678, hang_timeout_seconds=5.0), 2, False, said.append)
    assert (options.debug_rank, options.hang_timeout_seconds) == (0, None)
    assert said == ["--hang-timeout is off while a rank is debugged"]
    others = JobOptions(hang_timeout_seconds=5.0)
    assert debugged(others, 2, True, said.append) is others


@pytest.mark.parametrize(
    ("num_ranks", "has_other_hosts", "message"),
    [(4, True, "a job on this host alone"), (3, False, "received 3; expected a rank from 0 to 2")],
)
def test_what_cannot_be_debugged_is_refused(num_ranks: int, has_other_hosts: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        debugged(JobOptions(debug_rank=3), num_ranks, has_other_hosts, print)
    assert str(refused.value).endswith(" [debug]")


class Editor:
    """As much of an editor's debugger as lets a program that waits for one go on."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._reader, self._number = connection, connection.makefile("rb"), 0

    def ask(self, command: str, **arguments: Any) -> None:
        self._number += 1
        content = json.dumps({"seq": self._number, "type": "request", "command": command, "arguments": arguments})
        self._connection.sendall(f"Content-Length: {len(content)}\r\n\r\n{content}".encode())

    def until(self, kind: str, name: str) -> None:
        """Reads on to an event, or to the answer to a request."""
        while True:
            size = int(self._reader.readline().split(b":")[1])
            self._reader.readline()
            message = json.loads(self._reader.read(size))
            assert message.get("success", True), message
            if message["type"] == kind and message[kind if kind == "event" else "command"] == name:
                return


@contextmanager
def _connected(port: int) -> Iterator[Editor]:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_SECONDS) as connection:
        yield Editor(connection)


@pytest.mark.processes
def test_a_rank_waits_for_the_debugger_of_an_editor(tmp_path: Path, hold_ports: HoldPorts) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    [port] = hold_ports(1)
    program = start_python(
        *("-m", "paceline", "run", "--workers", "2", "--debug-port", str(port), "script.py", "none"), folder=tmp_path
    )
    try:
        give_up_at = time.monotonic() + LIMIT_SECONDS
        while f"rank 0 waits for a debugger at 127.0.0.1:{port}" not in program.output():
            assert time.monotonic() < give_up_at, program.output()
            assert program.process.poll() is None, program.output()
            time.sleep(0.05)
        assert "[0] answer" not in program.output()
        with _connected(port) as editor:
            editor.ask("initialize", adapterID="test")
            editor.until("response", "initialize")
            editor.ask("attach", justMyCode=True)
            editor.until("event", "initialized")
            editor.ask("configurationDone")
            editor.until("response", "configurationDone")
            ended = program.ended(LIMIT_SECONDS)
    finally:
        program.kill()
    assert ended.code == 0, ended.output
    assert {"[0] answer 41", "[1] answer 41"} <= set(ended.output.splitlines())
