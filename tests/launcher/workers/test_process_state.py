"""What the kernel tells of a worker that makes no step."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.launcher.workers.process_state import is_stopped, process_state

RENAMED = "open('/proc/self/comm', 'wb').write(b'gr\\xc3'); print('renamed', flush=True); input()"


def test_a_stopped_process_is_called_stopped():
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert process_state(child.pid).startswith("is stopped (SIGSTOP")
        os.kill(child.pid, signal.SIGCONT)
        deadline = time.monotonic() + 60
        while "stopped" in process_state(child.pid):
            assert time.monotonic() < deadline
    finally:
        child.kill()
        child.communicate()
    assert process_state(child.pid) == "is gone"


def test_this_process_runs():
    assert process_state(os.getpid()).startswith("is running")


def test_a_name_that_is_no_text_hides_nothing():
    """The kernel cuts names after 15 bytes, also within a letter: the look at a worker failed."""
    child = subprocess.Popen([sys.executable, "-c", RENAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"renamed\n"
        assert not is_stopped(child.pid)
        assert process_state(child.pid).partition(",")[0] in ("is running", "sleeps")
    finally:
        child.kill()
        child.communicate()


def test_a_kernel_that_does_not_say_where_a_process_waits_says_what_it_does(monkeypatch: pytest.MonkeyPatch):
    """In gVisor a worker that had hung "is gone"."""
    read_text = Path.read_text

    def without_wchan(self: Path, **options: str) -> str:
        if self.name == "wchan":
            raise FileNotFoundError(2, "No such file", str(self))
        return read_text(self, **options)

    monkeypatch.setattr(Path, "read_text", without_wchan)
    assert process_state(os.getpid()) == "is running"
