"""Runs `digits_job.py` in the processes of a cluster, one of which may be slowed down."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness

HERE = Path(__file__).parent
ROLES = {"data_parallel": ("worker 0", "worker 1"), "parameter_servers": ("chief", "worker 0", "worker 1", "ps 0")}
"""The first is the one that tells what came out. The workers have a core each."""
SLICE_SECONDS = 0.01


def result_of(kind: str, *arguments: str, slowdown: int = 1) -> dict[str, Any]:
    """What the chief of a job tells.

    Args:
        kind: A key of `ROLES`.
        arguments: Of `digits_job.py`, behind the kind.
        slowdown: How many times as long worker 1 takes for all that it does, once steps have begun.
    """
    with contextlib.ExitStack() as stack:
        processes = started(kind, arguments, stack)
        chief = next(iter(processes.values()))
        expect(chief, "begin")
        with slowed(processes["worker 1"].pid, slowdown):
            return json.loads(expect(chief, ""))


def started(kind: str, arguments: tuple[str, ...], stack: contextlib.ExitStack) -> dict[str, subprocess.Popen[bytes]]:
    cores = sorted(os.sched_getaffinity(0))
    ports = harness.free_ports(len(ROLES[kind]))
    cluster: dict[str, list[str]] = {}
    for role, port in zip(ROLES[kind], ports, strict=True):
        cluster.setdefault(role.split()[0], []).append(f"127.0.0.1:{port}")
    processes = {}
    for role in ROLES[kind]:
        name, _, index = role.partition(" ")
        variables = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "-1",
            "OMP_NUM_THREADS": "1",
            "TF_NUM_INTRAOP_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": name, "index": int(index or 0)}}),
        }
        own = {cores[int(index) % len(cores)]} if name == "worker" else set(cores)
        bound = f"import os, sys; os.sched_setaffinity(0, {own}); os.execv(sys.argv[1], sys.argv[1:])"
        command = [sys.executable, "-c", bound, sys.executable, str(HERE / "digits_job.py"), kind, *arguments]
        process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
        processes[role] = process
        stack.callback(process.wait)
        stack.callback(process.kill)
    return processes


def expect(chief: subprocess.Popen[bytes], word: str) -> str:
    """The next line that the chief writes, which is to be `word`, if it is not empty."""
    told = select.select([chief.stdout], [], [], harness.DEADLINE_SECONDS)[0]
    line = chief.stdout.readline().decode().strip() if told else "nothing in time"
    if (word and line != word) or not line:
        raise RuntimeError(f"the chief said {line!r}, expected {word or 'a result'!r}")
    return line


@contextlib.contextmanager
def slowed(pid: int, slowdown: int) -> Iterator[None]:
    """While the block lasts, a process runs for one of `slowdown` slices of time, and is stopped in the others."""
    is_over = threading.Event()

    def stop_and_go() -> None:
        while not is_over.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(SLICE_SECONDS * (slowdown - 1))
            os.kill(pid, signal.SIGCONT)
            time.sleep(SLICE_SECONDS)

    thread = threading.Thread(target=stop_and_go if slowdown > 1 else lambda: None)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
