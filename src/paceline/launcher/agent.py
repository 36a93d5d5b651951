"""The agent of this host: from a `JobDescription` to an exit code.

    check everything ─► plan (cores, GPUs, ports, seed) ─► guard ─► workers ─► supervise ─► nothing left ─► report

The later steps live in files of their own; this one only puts them in order.
"""

import asyncio
import os
import socket
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass

from paceline.cluster import environment
from paceline.cluster.free_ports import free_ports
from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.local import local_cluster
from paceline.cluster.spec import ClusterSpec
from paceline.cluster.tf_config import read_tf_config
from paceline.errors import ConfigurationError
from paceline.launcher.core_sharing import CoreShare, share_cores
from paceline.launcher.generation import Generation
from paceline.launcher.guard_line import guarded
from paceline.launcher.host_resources import core_quota, usable_cores, visible_gpus
from paceline.launcher.interrupts import interrupts
from paceline.launcher.job import MAX_SEED, JobDescription
from paceline.launcher.job_processes import JobProcesses
from paceline.launcher.outcome import Outcome
from paceline.launcher.pmi_service import PmiService
from paceline.launcher.report import report_lines, start_text
from paceline.launcher.screen import Screen
from paceline.launcher.sink import StreamSink
from paceline.launcher.supervision import Supervision, witnesses
from paceline.launcher.teardown import Teardown
from paceline.launcher.worker_environment import WorkerPlan, plan_workers, worker_environment
from paceline.launcher.worker_output import LogFile, WorkerOutput
from paceline.launcher.worker_process import WorkerProcess, start_worker

_FIRST_GENERATION = 1


@dataclass(frozen=True, slots=True)
class _Plan:
    """All that is decided before the first process starts."""

    job_id: str
    cluster: ClusterSpec
    shares: tuple[CoreShare, ...] | None
    gpus: tuple[str, ...]
    workers: tuple[WorkerPlan, ...]
    replaces_tf_config: bool

    @property
    def store_name(self) -> str:
        """The name of MPI's key-value store, which no other job or generation has."""
        return f"paceline_{self.job_id}_{_FIRST_GENERATION}"


def run_job(job: JobDescription) -> int:
    """Runs `job` to its end and returns its exit code: 0, or the first failure's. Blocks; leaves no process behind.

    The workers' output goes to ``sys.stdout`` and ``sys.stderr``. May be called inside a running event loop (a
    notebook), which then stands still meanwhile.

    Raises:
        ConfigurationError: TF_CONFIG or the log folder is wrong; nothing has been started.
        OSError: the system cannot start the processes; none is left.
    """
    plan = _make_plan(job)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run(job, plan, interruptible_by=None))
    return _run_in_thread(job, plan)


def _make_plan(job: JobDescription) -> _Plan:
    replaces_tf_config = read_tf_config(job.environment) is not None
    if job.log_dir is not None:
        try:
            job.log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise ConfigurationError(
                f"--log-dir: received {str(job.log_dir)!r}; expected a folder that can be written to ({fault})"
            ) from fault
    job_id = os.urandom(8).hex()
    seed = int.from_bytes(os.urandom(4)) if job.seed is None else job.seed
    assert 0 <= seed <= MAX_SEED
    shares = share_cores(usable_cores(), job.num_workers, core_quota()) if job.bind == "cores" else None
    gpus = visible_gpus(job.environment)
    identities = [
        WorkerIdentity(
            rank=rank,
            world_size=job.num_workers,
            local_rank=rank,
            local_world_size=job.num_workers,
            generation=_FIRST_GENERATION,
            job_id=job_id,
            seed=seed,
        )
        for rank in range(job.num_workers)
    ]
    return _Plan(
        job_id=job_id,
        cluster=local_cluster(free_ports(job.num_workers)),
        shares=shares,
        gpus=gpus,
        workers=plan_workers(identities, shares, gpus),
        replaces_tf_config=replaces_tf_config,
    )


async def _run(job: JobDescription, plan: _Plan, interruptible_by: "_Remote | None") -> int:
    loop = asyncio.get_running_loop()
    screen = Screen(
        StreamSink(sys.stdout, job.environment), StreamSink(sys.stderr, job.environment), job.num_workers
    )
    screen.say([f"paceline: {line}" for line in _opening_lines(job, plan)])
    teardown = Teardown(JobProcesses(plan.job_id), plan.store_name)
    with ExitStack() as lifetimes:
        ...
    return 0
