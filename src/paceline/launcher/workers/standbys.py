"""Standby processes of this host: they have imported TensorFlow and wait to become workers of the next generation."""

import contextlib
import subprocess
from collections.abc import Mapping, Sequence

from paceline.cluster import environment
from paceline.launcher.workers.guard_line import GuardLine
from paceline.launcher.workers.worker_process import SpawnedWorker, WorkerProcess, spawn_worker
from paceline.rendezvous.guard_words import WorkerEnded, WorkerStarted
from paceline.wire.frames import line

_UNTIL_CALLED = (
    environment.TASK,
    environment.RANK,
    environment.WORLD_SIZE,
    environment.LOCAL_RANK,
    environment.LOCAL_WORLD_SIZE,
    environment.GENERATION,
    environment.JOB_ID,
    environment.AGENT_ID,
    environment.TF_CONFIG,
)
"""What a standby is not told before it is a worker: a mark of the agent would end it with the generation before it."""


class Standbys:
    """Keeps a waiting process for each worker of this host.

    Args:
        command: What they run.
        guard: Is told their process ids, so that none outlives this agent.
        stdin: As for `spawn_worker`; a standby reads nothing before it is called.
    """

    def __init__(self, command: Sequence[str], guard: GuardLine, stdin: int | None = subprocess.DEVNULL) -> None:
        self._command = command
        self._guard = guard
        self._stdin = stdin
        self._waiting: list[SpawnedWorker] = []

    def fill(self, workers: Sequence[Mapping[str, str]]) -> None:
        """Starts what is missing: a standby for each of `workers`, given by their variables."""
        for variables in workers[len(self._waiting) :]:
            own = {name: value for name, value in variables.items() if name not in _UNTIL_CALLED}
            try:
                spawned = spawn_worker(self._command, {**own, environment.STANDBY_WORKER: "1"}, self._stdin)
            except OSError:
                return  # without a standby the next start is only slower
            self._waiting.append(spawned)
            self._guard.tell(WorkerStarted(spawned.process.pid))

    def call(self, rank: int, variables: Mapping[str, str]) -> WorkerProcess | None:
        """A standby that becomes the worker of `rank` with `variables`; None: there is none that lives."""
        told = line(variables)
        while self._waiting:
            spawned = self._waiting.pop(0)
            with contextlib.suppress(OSError):  # it has ended
                spawned.messages.sendall(told)
                if spawned.process.poll() is None:
                    return WorkerProcess(rank, spawned)
            self._end(spawned)
        return None

    def close(self) -> None:
        """Ends those that were not needed."""
        while self._waiting:
            self._end(self._waiting.pop())

    def _end(self, spawned: SpawnedWorker) -> None:
        spawned.process.kill()
        spawned.process.wait()
        spawned.close()
        self._guard.tell(WorkerEnded(spawned.process.pid))
