"""Ends all of a job on this host: processes, shared memory, files. For the agent and the guard.

Ranks take the names of their segments in ``/dev/shm`` away right after MPI stands, so only a worker that dies before
that moment leaves one: 2 to 3 MB of memory that no process owns, until the next boot. Two marks lead to them: living
processes map them, and MPICH names them after its key-value store, which tells those of ranks that are dead already.

A worker's children outlive it easily: data loaders in process groups or sessions of their own, servers in the
background. Two marks lead to them: descent (the tree below each worker, remembered while it stands) and the
agent's id in the environment, which children inherit even when their parents are gone. The agent's, and not the
job's: two "hosts" of a job may be one machine, and the end of one must not be the other's.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.cluster import environment
from paceline.cluster.job_directory import job_directory, remove_job_directory
from paceline.cluster.spec import Task
from paceline.rendezvous.pmi import store_name

if TYPE_CHECKING:
    import psutil


class JobProcesses:
    """The processes of one agent's part of a job, found again at each call.

    A process that gave up its parent, its session *and* its environment before anybody looked is not found.

    Args:
        job_id: Of which job.
        agent_id: The value of PACELINE_AGENT_ID in their environment.
    """

    def __init__(self, job_id: str, agent_id: str) -> None:
        self._job_id = job_id
        self._agent_id = agent_id
        self._workers: set[int] = set()
        self._known: dict[tuple[int, float], psutil.Process] = {}

    @property
    def job_id(self) -> str:
        """Whose processes they are."""
        return self._job_id

    @property
    def agent_id(self) -> str:
        """What marks them."""
        return self._agent_id

    def worker_started(self, pid: int) -> None:
        """The process `pid` is one of the job, whatever it does to its environment."""
        self._workers.add(pid)

    def worker_ended(self, pid: int) -> None:
        """The process has ended: the number may soon be another process's."""
        self._workers.discard(pid)

    def survey(self) -> list["psutil.Process"]:
        """Those that live now; from here on they are known even when their parents end."""
        pids = self._workers.union(marked_pids(environment.AGENT_ID, self._agent_id))
        if not pids and not self._known:
            return []
        import psutil  # here, because at the end of a job that went well there is nothing to find

        for pid in pids:
            with contextlib.suppress(psutil.Error):
                self._remember(psutil.Process(pid))
        for process in self._living():
            with contextlib.suppress(psutil.Error):
                for child in process.children(recursive=True):
                    self._remember(child)
        return self._living()

    def left_by(self, task: Task) -> list["psutil.Process"]:
        """Those that the process of `task`, which has ended, had started."""
        marked = marked_pids(environment.TASK, str(task))
        return [process for process in self.survey() if process.pid in marked]

    def are_the_last(self) -> bool:
        """Whether no other agent's part of the job lives on this machine. To be asked after the last `survey`."""
        own = {process.pid for process in self._living()}
        return own.issuperset(marked_pids(environment.JOB_ID, self._job_id))

    def _remember(self, process: "psutil.Process") -> None:
        self._known[(process.pid, process.create_time())] = process

    def _living(self) -> list["psutil.Process"]:
        self._known = {key: process for key, process in self._known.items() if _lives(process)}
        return list(self._known.values())


def _lives(process: "psutil.Process") -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def marked_pids(variable: str, value: str) -> list[int]:
    """The processes that were started with `variable` set to `value`, this one excepted.

    Read without psutil, which takes longer to load than this takes: it is done at the end of every job.
    """
    mark = f"{variable}={value}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                if mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def kill(processes: Iterable["psutil.Process"]) -> None:
    """SIGKILL to each; psutil compares creation times, so never to another process that got its number."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)


_PAUSE_SECONDS = 0.01


class Teardown:
    """Kills the processes of an agent's part of a job and removes what they leave.

    Args:
        processes: Those.
    """

    def __init__(self, processes: JobProcesses) -> None:
        self._processes = processes
        self._segments: frozenset[Path] = frozenset()
        self._generation = 0

    def generation_begins(self, generation: int) -> None:
        """Its MPI may make segments from now on."""
        self._generation = generation

    def survey(self) -> list["psutil.Process"]:
        """The living processes; remembers them and their segments before what leads to them is gone."""
        living = self._processes.survey()
        self._segments |= mapped_segments(process.pid for process in living)
        return living

    def kill(self) -> None:
        """One round of SIGKILL."""
        kill(self.survey())

    def end_leftovers(self, task: Task, limit_seconds: float) -> None:
        """Kills what the ended process of `task` has started, within `limit_seconds`."""
        give_up_at = time.monotonic() + limit_seconds
        while (living := self._processes.left_by(task)) and time.monotonic() < give_up_at:
            kill(living)
            time.sleep(_PAUSE_SECONDS)

    def finish(self, limit_seconds: float) -> list[int]:
        """Kills until nothing is left or `limit_seconds` are over; removes segments and files; returns what is left."""
        give_up_at = time.monotonic() + limit_seconds
        # A process may fork between being seen and being killed: only an empty survey is the end.
        while (living := self.survey()) and time.monotonic() < give_up_at:
            kill(living)
            time.sleep(_PAUSE_SECONDS)
        remove_segments(self._segments | segments_of_generation(self._processes.job_id, self._generation))
        # "Hosts" that are one machine share it: the last one there removes it.
        if job_directory(self._processes.job_id).exists() and self._processes.are_the_last():
            remove_job_directory(self._processes.job_id)
        return [process.pid for process in living]


_DIRECTORY = Path("/dev/shm")
_OURS = ("mpich_shm_", "ucx_")
"""How the names of MPICH's and its transport's segments begin; a script's own are not ours to remove."""

_NAMED_AFTER_STORE = ("mpich_shm_", "mpich_vci_")


def mapped_segments(pids: Iterable[int]) -> frozenset[Path]:
    """The segments of MPI that the processes `pids` map now; to be asked before they are killed."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError), Path(f"/proc/{pid}/maps").open() as maps:
            for line in maps:
                _, separator, name = line.rstrip("\n").partition(f" {_DIRECTORY}/")
                if separator and name.startswith(_OURS):  # "x (deleted)": there is no such file
                    found.add(_DIRECTORY / name)
    return frozenset(found)


def segments_of_generation(job_id: str, generation: int) -> frozenset[Path]:
    """The segments that MPICH has named after the key-value store of a job's `generation`, mapped or not.

    ``mpich_shm_HASH_NODE``: see ``posix_init.c`` and ``mpir_pmi.c`` of MPICH; releases after 5.0 add to the name how
    often MPI was started in the process.
    """
    name = store_name(job_id, generation)
    hashes = {_fowler_noll_vo(text) for text in (name, f"{name}-1")}
    return frozenset(
        path for start in _NAMED_AFTER_STORE for number in hashes for path in _DIRECTORY.glob(f"{start}{number:x}_*")
    )


def _fowler_noll_vo(text: str) -> int:
    """The hash FNV-1a of 32 bits.

    >>> f"{_fowler_noll_vo('a'):x}"
    'e40c292c'
    """
    number = 2166136261
    for byte in text.encode():
        number = (number ^ byte) * 16777619 % 2**32
    return number


def remove_segments(segments: Iterable[Path]) -> None:
    """Removes `segments`; one that is gone is no error."""
    for path in segments:
        with contextlib.suppress(OSError):
            path.unlink()
