"""All processes of a job on this host, also those that scripts started, and how to end every one of them.

A worker's children outlive it easily: data loaders in process groups or sessions of their own, servers in the
background. Two marks lead to them: descent (the tree below each worker, remembered while it stands) and the
job's id in the environment, which children inherit even when their parents are gone.
"""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil

from paceline.cluster import environment


class JobProcesses:
    """The processes of one job, found again at each call.

    A process that gave up its parent, its session *and* its environment before anybody looked is not found.

    Args:
        job_id: The value of PACELINE_JOB_ID in their environment.
    """

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._known: dict[tuple[int, float], psutil.Process] = {}

    def add(self, pid: int) -> None:
        """Takes the process `pid` for one of the job; no error if it has ended."""
        with contextlib.suppress(psutil.Error):
            self._remember(psutil.Process(pid))

    def survey(self) -> list[psutil.Process]:
        """Those that live now; from here on they are known even when their parents end."""
        for pid in marked_pids(self._job_id):
            self.add(pid)
        for process in self._living():
            with contextlib.suppress(psutil.Error):
                for child in process.children(recursive=True):
                    self._remember(child)
        return self._living()

    def _remember(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.Error):
            self._known[(process.pid, process.create_time())] = process

    def _living(self) -> list[psutil.Process]:
        living = []
        for key, process in list(self._known.items()):
            if _lives(process):
                living.append(process)
            else:
                del self._known[key]
        return living


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def marked_pids(job_id: str) -> list[int]:
    """The processes that were started with the job's id in their environment, this one excepted.

    Read without psutil, which takes ten times as long: this is done at the end of every job, on hosts with
    thousands of processes.
    """
    mark = f"{environment.JOB_ID}={job_id}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL to each; psutil compares creation times, so never to another process that got its number."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
