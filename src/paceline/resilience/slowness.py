"""Makes this process slow: another process stops it, and lets it go on, fifty times a second."""

import os
import subprocess
import sys

_PERIOD_SECONDS = 0.02

_STOP_AND_GO = f"""
import os, signal, sys, time
pid, stopped = int(sys.argv[1]), {_PERIOD_SECONDS} * (1 - 1 / float(sys.argv[2]))
while os.getppid() == pid:  # it has not ended
    os.kill(pid, signal.SIGSTOP)
    time.sleep(stopped)
    os.kill(pid, signal.SIGCONT)
    time.sleep({_PERIOD_SECONDS} - stopped)
"""


def slow_down(factor: float) -> None:
    """From now on, and until it ends, all that this process does takes `factor` times as long; more than 1."""
    command = [sys.executable, "-I", "-S", "-c", _STOP_AND_GO, str(os.getpid()), str(factor)]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
