"""The workers of this host, as child processes of this agent."""

import asyncio
import contextlib
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from paceline.cluster import environment
from paceline.cluster.control_groups import core_quota
from paceline.cluster.job_directory import free_bytes
from paceline.cluster.launched import WorkerIdentity, slot_holders
from paceline.cluster.spec import Address, ClusterSpec
from paceline.errors import EXIT_UNAVAILABLE
from paceline.events.worker_events import BatchDone, StepDone
from paceline.launcher.event_loop import in_background
from paceline.launcher.existing_snapshots import newest_snapshot
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.crew import Crew, CrewListener, Heard
from paceline.launcher.workers.guard_line import GuardLine
from paceline.launcher.workers.host_resources import share_cores, usable_cores
from paceline.launcher.workers.process_state import Standstill, is_stopped, memory_kills, process_state
from paceline.launcher.workers.standbys import Standbys
from paceline.launcher.workers.teardown import JobProcesses, Teardown
from paceline.launcher.workers.worker_environment import (
    CUDA_VISIBLE_DEVICES,
    WorkerPlan,
    plan_workers,
    worker_environment,
)
from paceline.launcher.workers.worker_process import WorkerProcess, spawn_worker
from paceline.rendezvous import guard_words
from paceline.rendezvous.agent_messages import (
    Begin,
    Complaint,
    Examine,
    Examined,
    Fence,
    HostFacts,
    Kill,
    Order,
    Release,
    Replace,
    Spoke,
    Started,
    Terminate,
    WorkerEnded,
    Wrote,
)
from paceline.rendezvous.channel import Joined, KilledFromOutside, Stopped
from paceline.rendezvous.pmi import PmiService

_TEARDOWN_SECONDS = 0.5
"""How long processes that survive SIGKILL for a moment are waited for."""

_SILENCE_SECONDS = 0.5
"""How long output, and ends, that are still on their way are waited for, once every process has ended."""

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
"""Signals that a process seldom sends to itself."""

_LOOKING_SECONDS = 0.25
"""How often workers are looked at that may be stopped."""


class LocalCrew(Crew):
    """Starts, watches and ends worker processes.

    Args:
        loop: The running event loop.
        job: What they run.
        facts: Of this host.
        processes: All processes of the job on this host.
        guard: Is told the process ids of workers.
        keyboard_rank: The rank that reads this process's stdin; None: nobody does.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        job: JobDescription,
        facts: HostFacts,
        *,
        processes: JobProcesses,
        guard: GuardLine,
        keyboard_rank: int | None = None,
    ) -> None:
        self._keyboard_rank = keyboard_rank
        self._loop = loop
        self._job = job
        self._facts = facts
        self._processes = processes
        self._teardown = Teardown(processes)
        self._guard = guard
        self._workers: dict[int, WorkerProcess] = {}
        self._listener: CrewListener  # from `begin` on
        self._pmi: dict[int, PmiService] = {}
        self._silence = asyncio.Event()
        self._standbys = Standbys(job.command, guard, self._stdin_of(keyboard_rank)) if job.options.standby else None
        self._variables: dict[int, dict[str, str]] = {}
        """Of those that a standby may become, by rank."""
        self._servers: set[int] = set()
        """Those that are ended by SIGKILL: they have nothing to do at their end, and ignore SIGTERM."""
        self._starts: dict[int, Callable[[], None]] = {}
        self._memory_before = memory_kills()
        self._standstill: Standstill | None = None
        self._looking: asyncio.TimerHandle | None = None

    @property
    def facts(self) -> HostFacts:
        """See `Crew.facts`."""
        return self._facts

    def begin(self, order: Begin, listener: CrewListener) -> None:
        """See `Crew.begin`."""
        self._listener = listener
        self._silence = asyncio.Event()
        self._workers = {}
        self._variables = {}
        self._servers = {one.rank for one in order.identities if one.serves}
        self._memory_before = memory_kills()
        self._pmi = {}
        generation = order.identities[0].generation
        self._teardown.generation_begins(generation)
        self._guard.tell(guard_words.GenerationBegins(generation))
        told = {
            **order.environment,
            environment.FREE_SHARED_MEMORY: str(free_bytes()),
            environment.AGENT_ID: self._processes.agent_id,
        }
        start = partial(self._start, ClusterSpec(order.cluster), told, listener)
        self._starts = {plan.identity.rank: partial(start, plan) for plan in self._plans(order)}
        for start_one in self._starts.values():
            start_one()
        if self._job.options.hang_timeout_seconds is not None:
            self._standstill = Standstill(self._job.options.hang_timeout_seconds)
            self._look_for_stopped()

    def obey(self, order: Order) -> None:
        """See `Crew.obey`."""
        match order:
            case Release(keys=keys):
                for pmi in self._pmi.values():
                    pmi.release(keys)
            case Replace(rank=rank):
                self._replace(rank)
            case Terminate(ranks=ranks):  # why it was: the user here reads that in the head's report
                self._teardown.survey()  # while parents still lead to their children
                for rank in ranks:
                    if rank in self._workers:
                        self._workers[rank].send(signal.SIGKILL if rank in self._servers else signal.SIGTERM)
            case Examine(ranks=ranks, quietly=quietly):
                for rank in ranks:
                    if rank in self._workers:
                        self._examine(rank, self._workers[rank], quietly=quietly)
            case Kill():
                for worker in self._workers.values():
                    worker.about_to_send(signal.SIGKILL)
                self._teardown.kill()

    def _replace(self, rank: int) -> None:
        try:
            self._starts[rank]()
        except OSError as fault:
            self._listener(Complaint(f"a process cannot be started again: {fault}"))
            self._loop.call_soon(self._listener, WorkerEnded(rank, EXIT_UNAVAILABLE))

    def _examine(self, rank: int, worker: WorkerProcess, *, quietly: bool) -> None:
        worker.ask_where()
        if quietly:
            return
        if is_stopped(worker.pid):
            self._listener(Spoke(rank, Stopped()))
        self._listener(Examined(rank, process_state(worker.pid)))
        worker.ask_for_stacks()

    async def finish(self) -> None:
        """See `Crew.finish`."""
        if self._looking is not None:
            self._looking.cancel()
        for worker in self._workers.values():
            worker.about_to_send(signal.SIGKILL)
        self._teardown.finish(_TEARDOWN_SECONDS)
        if any(not worker.is_silent for worker in self._workers.values()):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._silence.wait(), _SILENCE_SECONDS)
        for pmi in self._pmi.values():
            pmi.close()
        for worker in self._workers.values():
            worker.detach(self._loop)

    @property
    def shows_own_output(self) -> bool:
        """See `Crew.shows_own_output`."""
        return False

    def close(self) -> None:
        """See `Crew.close`."""
        if self._standbys is not None:
            self._standbys.close()

    async def newest_snapshot(self, directory: str) -> str:
        """See `Crew.newest_snapshot`."""
        return await in_background(lambda: newest_snapshot(directory))

    async def look(self, target: HostFacts, addresses: Sequence[Address], key: bytes) -> tuple[str, ...]:
        """See `Crew.look`."""
        from paceline.launcher.workers.address_check import (
            look_for,  # a job on one host starts quickly, and never looks
        )

        return await look_for(target.hostname, target.pid, addresses, key)

    def hold_output(self, held: bool) -> None:
        """See `Crew.hold_output`."""
        for worker in self._workers.values():
            worker.hold_output(held, self._loop, self._hear)

    def _hear(self, report: Heard) -> None:
        """What a worker says, adds to it what only its parent knows, and passes it on."""
        match report:
            case Spoke(rank=rank, message=message) if self._standbys is not None:
                works = isinstance(message, Joined if rank in self._servers else StepDone | BatchDone)
                if works:  # not before: the first start needs the cores itself
                    self._standbys.fill(list(self._variables.values()))
            case WorkerEnded(rank=rank, exit_code=code):
                if -code in _FROM_OUTSIDE and not self._workers[rank].was_sent(-code):
                    shortage = self._memory_before.shortage_until(memory_kills())
                    self._listener(Spoke(rank, KilledFromOutside(shortage)))
        self._listener(report)
        if isinstance(report, Wrote | WorkerEnded) and all(worker.is_silent for worker in self._workers.values()):
            self._silence.set()

    def _forget(self, pid: int) -> None:
        self._processes.worker_ended(pid)
        self._guard.tell(guard_words.WorkerEnded(pid))

    def _look_for_stopped(self) -> None:
        assert self._standstill is not None
        self._looking = self._loop.call_later(_LOOKING_SECONDS, self._look_for_stopped)
        stopped = {rank for rank, worker in self._workers.items() if is_stopped(worker.pid)}
        for rank in self._standstill.overdue(stopped, self._loop.time()):
            self._listener(Spoke(rank, Stopped()))

    def _plans(self, order: Begin) -> tuple[WorkerPlan, ...]:
        num_workers = len(slot_holders(order.identities))
        is_bound = self._job.options.bind == "cores" and num_workers
        shares = share_cores(usable_cores(), num_workers, core_quota()) if is_bound else None
        return plan_workers(
            order.identities,
            shares,
            self._facts.gpus,
            gpus_are_given=CUDA_VISIBLE_DEVICES in self._job.environment,
            net_devices=_net_devices(order.interface),
        )

    def _start(self, cluster: ClusterSpec, told: Mapping[str, str], listener: CrewListener, plan: WorkerPlan) -> None:
        rank, in_world = plan.identity.rank, plan.identity.in_world
        if rank in self._workers:  # the process before it has ended; what that has left may hold its port
            self._teardown.end_leftovers(plan.identity.task, _TEARDOWN_SECONDS)
            self._workers[rank].detach(self._loop)
        variables = worker_environment(plan, cluster, self._job.environment, told)
        called = None
        if in_world or plan.identity.serves:
            self._variables[rank] = variables
            called = self._standbys.call(rank, variables) if self._standbys is not None else None
        stdin = self._stdin_of(rank if in_world else None)
        worker = called or WorkerProcess(rank, spawn_worker(self._job.command, variables, stdin))
        self._workers[rank] = worker
        if in_world:
            self._answer_mpi(plan.identity, worker.pmi, listener)
        else:
            worker.pmi.close()
        self._processes.worker_started(worker.pid)
        self._guard.tell(guard_words.WorkerStarted(worker.pid))
        worker.attach(self._loop, self._hear, partial(self._forget, worker.pid))
        listener(Started(rank, worker.pid))

    def _stdin_of(self, rank: int | None) -> int | None:
        """What a worker of that rank reads, as for `spawn_worker`."""
        return None if rank is not None and rank == self._keyboard_rank else subprocess.DEVNULL

    def _answer_mpi(self, identity: WorkerIdentity, connection: socket.socket, listener: CrewListener) -> None:
        rank = identity.rank
        self._pmi[rank] = PmiService(
            self._loop,
            connection,
            identity,
            on_barrier=lambda keys: listener(Fence(rank, keys)),
            on_fault=lambda fault: listener(Complaint(f"rank {rank} {fault}. Its MPI cannot start")),
        )
        self._pmi[rank].start()


def _net_devices(interface: str) -> str:
    if not interface:
        return ""
    from paceline.cluster.peer_interface import net_devices  # not for a job on one host: it starts at once

    return net_devices([interface])
