"""What the kernel tells of a worker that makes no step."""

import os
import signal
import subprocess
import sys
import time

from paceline.launcher.workers.process_state import num_out_of_memory_kills, parse_kills, process_state


def test_a_stopped_process_is_called_stopped():
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert process_state(child.pid).startswith("is stopped (SIGSTOP")
        os.kill(child.pid, signal.SIGCONT)
        deadline = time.monotonic() + 10
        while "stopped" in process_state(child.pid):
            assert time.monotonic() < deadline
    finally:
        child.kill()
        child.communicate()
    assert process_state(child.pid) == "is gone"


def test_this_process_runs():
    assert process_state(os.getpid()).startswith("is running")


def test_the_kernels_count_of_kills():
    assert parse_kills("nr_free_pages 12\noom_kill 7\n") == 7
    assert parse_kills("") == 0
    assert num_out_of_memory_kills() >= 0
