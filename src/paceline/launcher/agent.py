"""The agent of this host: from a `JobDescription` to an exit code.

    check all ─► plan (cores, GPUs, ports, seed) ─► guard ─► workers ─► supervise ─► nothing left ─► report

The later steps live in files of their own; this one only puts them in order.
"""

import asyncio
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
from paceline.launcher.pmi_service import PmiService
from paceline.launcher.report import report_lines, start_text
from paceline.launcher.screen import Screen
from paceline.launcher.sink import StreamSink
from paceline.launcher.supervision import Supervision
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
    """Runs `job` to its end, leaves no process behind, and returns its exit code: 0, or the first failure's.

    The workers' output goes to ``sys.stdout`` and ``sys.stderr``. May be called inside a running event loop
    (a notebook), which then stands still meanwhile.

    Raises:
        ConfigurationError: TF_CONFIG or the log folder is wrong; nothing has been started.
        OSError: the system cannot start the processes; none is left.
    """
    plan = _make_plan(job)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_run(job, plan))
    return _run_beside_running_loop(job, plan)


def _run_beside_running_loop(job: JobDescription, plan: _Plan) -> int:
    """In a thread with a loop of its own; Ctrl-C, which reaches only the main thread, is passed on."""
    interrupters: list[Callable[[], object]] = []
    with ThreadPoolExecutor(1) as pool:
        job_code = pool.submit(lambda: asyncio.run(_run(job, plan, interrupters.append)))
        while True:
            try:
                return job_code.result()
            except KeyboardInterrupt:
                for interrupt in interrupters:
                    interrupt()


def _make_plan(job: JobDescription) -> _Plan:
    replaces_tf_config = read_tf_config(job.environment) is not None
    if job.log_dir is not None:
        try:
            job.log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise ConfigurationError(
                f"--log-dir: received {str(job.log_dir)!r}; expected a writable folder ({fault})"
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


async def _run(
    job: JobDescription, plan: _Plan, offer_interrupter: Callable[[Callable[[], object]], None] | None = None
) -> int:
    """`offer_interrupter` is handed a function that does what Ctrl-C does, callable in any thread."""
    loop = asyncio.get_running_loop()
    stdout, stderr = (StreamSink(stream, job.environment) for stream in (sys.stdout, sys.stderr))
    screen = Screen(stdout, stderr, job.num_workers)
    screen.say([f"paceline: {line}" for line in _opening_lines(job, plan)])
    with ExitStack() as lifetimes:
        outputs = [
            WorkerOutput(rank, screen, lifetimes.enter_context(LogFile(path)) if path is not None else None)
            for rank, path in enumerate(_log_paths(job))
        ]
        pmi = PmiService(
            loop,
            world_size=job.num_workers,
            store_name=plan.store_name,
            complain=lambda line: screen.say([f"paceline: {line}"]),
        )
        lifetimes.callback(pmi.close)
        supervision = Supervision(
            loop,
            Generation(
                num_workers=job.num_workers,
                start_timeout_seconds=job.start_timeout_seconds,
                now=time.monotonic(),
            ),
            [partial(_start, job, plan, worker, pmi) for worker in plan.workers],
            outputs,
            screen=screen,
            processes=JobProcesses(plan.job_id),
            guard=lifetimes.enter_context(guarded(plan.job_id)),
        )
        if offer_interrupter is not None:
            offer_interrupter(partial(loop.call_soon_threadsafe, supervision.receive_signal, signal.SIGINT))
        lifetimes.enter_context(interrupts(loop, supervision.receive_signal))
        outcome = await supervision.run()
        screen.close()
        screen.say(report_lines(outcome, supervision.witnesses(socket.gethostname())))
    return outcome.exit_code


def _start(job: JobDescription, plan: _Plan, worker: WorkerPlan, pmi: PmiService) -> WorkerProcess:
    rank = worker.identity.rank
    variables = worker_environment(worker, plan.cluster, job.environment, drop_in=job.drop_in)
    process = start_worker(rank, job.command, variables)
    pmi.serve(rank, process.pmi)
    return process


def _log_paths(job: JobDescription) -> list[Path | None]:
    return [job.log_dir / f"job_{rank}.log" if job.log_dir else None for rank in range(job.num_workers)]


def _opening_lines(job: JobDescription, plan: _Plan) -> list[str]:
    lines = [start_text(job.num_workers, plan.shares, len(plan.gpus), plan.job_id)]
    if plan.replaces_tf_config:
        lines.append("the TF_CONFIG of this shell is replaced by one for the workers started here")
    if job.verbose:
        lines.append(f"seed {plan.workers[0].identity.seed}; each worker runs: {shlex.join(job.command)}")
        for worker in plan.workers:
            cores = ",".join(map(str, worker.cores.cores)) if worker.cores is not None else "any"
            address = plan.cluster.address_of_rank(worker.identity.rank)
            gpu = f", GPU {worker.gpu}" if worker.gpu is not None else ""
            lines.append(f"rank {worker.identity.rank}: cores {cores}{gpu}, address {address}")
        if job.log_dir is not None:
            lines.append(f"log files: {job.log_dir}/job_0.log and so on")
    return lines
