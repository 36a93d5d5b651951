"""This process's place in the job: who it is, its line to its agent, and the groups that it talks in.

A process belongs to one world for its whole life: the launcher's (known from the environment), one joined by hand, or
alone. Its groups are formed at first use, not when the place is known: workers that still download data keep nobody
from importing.
"""

import contextlib
import functools
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from paceline.cluster import environment, job_options
from paceline.cluster.communication import Communication, refuse_different
from paceline.cluster.job_options import JobOptions
from paceline.cluster.launched import WorkerIdentity, launched_identity
from paceline.cluster.options import read_variables
from paceline.cluster.spec import WORKER, Address, ClusterSpec, Task
from paceline.comm.agent_sink import AgentSink
from paceline.comm.axes import DATA, Axes
from paceline.comm.mpi_wiring import MpiWiring
from paceline.comm.step_flags import StepFlags
from paceline.events.bus import bus
from paceline.events.worker_events import RecordsFailed
from paceline.observe.frames import script_line
from paceline.rendezvous.channel import AgentLine, Failed, Finishing, Joined, Joining, Left, Message

if TYPE_CHECKING:
    from paceline.comm.counted_group import CountedGroup
    from paceline.comm.group import Group
    from paceline.comm.sharing import Sharing
    from paceline.comm.step_clock import StepClock
    from paceline.comm.step_recorder import StepRecorder

    Place = tuple[ClusterSpec, Task]

_LOGGER = logging.getLogger("paceline")

_CLOSED = (
    "the script has closed descriptors that it had not opened (as os.closerange(3, ...) does, and programs that become "
    "daemons), and with them this worker's connection to its launcher"
)


class World:
    """A process's place in its job.

    Args:
        identity: Rank, world size and the rest.
        connect: Forms the group of all ranks; called once, when somebody first talks.
        line: To this process's agent; None without one.
        leave: Called after the group was left in order.
        abandon: Called with the exit code in a hurry: ends this process and the others. None: an agent does that.
        place: Says what `place` is, when somebody wants to know.
    """

    def __init__(
        self,
        identity: WorkerIdentity,
        connect: Callable[[], "Group"],
        line: AgentLine | None = None,
        leave: Callable[[], None] = lambda: None,
        abandon: Callable[[int], None] | None = None,
        place: "Callable[[], Place | None]" = lambda: None,
    ) -> None:
        self.identity = identity
        self._place = place
        self.abandon = abandon
        self.fatal: BaseException | None = None
        """The error that ended communication; TensorFlow hands on only its text, so it is kept here."""
        self.fails_with_another: Callable[[BaseException], bool] = lambda _: False
        """Whether an error that ended the script says that another process is lost, whose end the launcher sees."""
        self.verify = read_variables(JobOptions, os.environ, "verify").verify
        """What becomes of a step that cannot be divided, or not rightly: "auto", "strict" or "off"."""
        self.batch_statistics = read_variables(JobOptions, os.environ, "batch_statistics").batch_statistics
        """By what BatchNormalization in a divided step normalizes: "exact" or "local"."""
        self.solo_training_allowed = read_variables(JobOptions, os.environ, "allow_independent").allow_independent
        """Whether an optimizer step that concerns this rank only is meant (a model built outside the scope)."""
        self.has_lonely_gradients = False
        """Whether this rank has taken gradients of variables outside of the steps that all ranks take together."""
        self.has_combined = False
        """Whether something has been asked for that all ranks compute together: a sum, rows, a gathered tensor."""
        self.communication = Communication.MPI
        """What carries the numbers, from `connect_through` on."""
        observe = read_variables(JobOptions, os.environ, "observe").observe
        self.observed_in = observe.absolute() if observe is not None and self.launched and line is not None else None
        """Where this rank keeps its steps, as seen from where it starts; None: nowhere. Without a launcher nobody would
        read them; a process that the script starts has this rank's variables, but no line to the agent."""
        self.flags = StepFlags()
        """What ranks want of each other at the end of a step."""
        self.sharing: Sharing | None = None
        """By what rows are shared out anew while a `fit` lasts; None: they are not."""
        self._connect = connect
        self._over: Callable[[Group], Group] = lambda messages: messages
        self._line = line
        self._leave = leave
        self._is_cut_off = False
        self.recorder: StepRecorder | None = None
        """Keeps this rank's steps, from the first one on, if somebody wants them."""
        self._axes = Axes(identity.rank, identity.world_size, self._form, lambda: self.tell(Joined()))

    @functools.cached_property
    def place(self) -> "Place | None":
        """The cluster as TF_CONFIG describes it and this process's task; None in a process that is alone."""
        return self._place()

    def host_of(self, rank: int) -> str:
        """The host of a rank, as TF_CONFIG names it; empty: all are on one, or it is not known."""
        if self.place is None:
            return ""
        cluster, _ = self.place
        hosts = [cluster.address_of(task).host for task in cluster.training_tasks]
        return hosts[rank] if len(hosts) == self.size and len(set(hosts)) > 1 else ""

    @functools.cached_property
    def clock(self) -> "StepClock":
        """Where the time of this rank's steps goes."""
        from paceline.comm.step_clock import StepClock  # needs NumPy, as only a script that trains does

        clock = StepClock()
        if self.observed_in is not None:
            from paceline.comm.step_recorder import StepRecorder  # most jobs have none

            def failed(reason: str) -> None:
                clock.note = None
                bus.emit(RecordsFailed(self.rank, reason))

            self.recorder = StepRecorder(self.observed_in, self.identity, socket.gethostname(), failed)
            clock.note = self.recorder.note
            bus.subscribe(self.recorder.hear)
            self.recorder.start()
        return clock

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self.identity.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.identity.world_size

    @property
    def launched(self) -> bool:
        """Whether `paceline run` started this process."""
        return environment.RANK in os.environ

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0 of the job, which speaks on the terminal and writes what the job keeps."""
        return self.identity.rank == 0

    @property
    def group(self) -> "CountedGroup":
        """The group of all ranks: for agreements of the whole job. Its first collective forms it, and the axes'."""
        return self._axes.all_ranks()

    @property
    def data(self) -> "CountedGroup":
        """The group of the replicas of this rank's model: whoever sums gradients with it and shares its batches."""
        return self._axes.along(DATA)

    def axis(self, name: str) -> "CountedGroup":
        """The group of the ranks that lie in one line with this one along an axis: see `Axes.along`."""
        return self._axes.along(name)

    @property
    def models(self) -> tuple[tuple[int, ...], ...]:
        """Of each model that the job trains, the ranks that are its replicas."""
        return self._axes.lines(DATA)

    def arrange(self, axes: Mapping[str, int]) -> None:
        """Lays the ranks out on other axes, before any group is formed: see `Axes.arrange`."""
        self._axes.arrange(axes)

    def _form(self) -> "Group":
        self._need_line()
        self.tell(Joining())
        messages = self._connect()
        if messages.size > 1:
            import numpy as np  # only a script that communicates needs it

            known = list(Communication)  # a rank chooses by its variables, and by whether it has a GPU to itself
            chosen = messages.all_gather(np.array([known.index(self.communication)], np.int64))
            refuse_different([known[int(index)] for [index] in chosen])
        return self._over(messages)

    def connect_through(self, communication: Communication, over: Callable[["Group"], "Group"]) -> None:
        """Chooses another way to communicate, before the group is formed.

        Args:
            communication: The way.
            over: Makes the group that uses it of the group over MPI. Collective.

        Raises:
            RuntimeError: the group has been formed.
        """
        if self.formed:
            raise RuntimeError(
                f"the ranks already communicate over {self.communication.value}, too late for {communication.value}. "
                f"Set {job_options.COMMUNICATION} before the script starts. [communication]"
            )
        self.communication = communication
        self._over = over

    def stand_in(self, size: int) -> None:
        """From now on the job has `size` ranks, for whom those that are there stand in (`stand_ins.py`): to predict it.

        Every rank calls this alike, before TensorFlow is imported.

        Raises:
            RuntimeError: the group has been formed.
        """
        if self.formed:
            raise RuntimeError("the ranks already communicate, too late to stand in for others. [communication]")
        connect = self._connect

        def connect_present() -> "Group":
            from paceline.comm.stand_ins import StandInGroup  # NumPy, as `Axes._group`

            return StandInGroup(connect(), size)

        place = self._place
        self._place = lambda: _of_so_many(size, place())
        self.identity = replace(self.identity, world_size=size)
        self._connect = connect_present
        self._axes = Axes(self.rank, size, self._form, lambda: self.tell(Joined()))

    @property
    def formed(self) -> bool:
        """Whether the group of all ranks has been formed."""
        return self._axes.formed

    @contextlib.contextmanager
    def training_alone(self) -> Iterator[None]:
        """While this lasts, an optimizer step of this rank alone is meant."""
        before, self.solo_training_allowed = self.solo_training_allowed, True
        try:
            yield
        finally:
            self.solo_training_allowed = before

    def tell(self, message: Message) -> None:
        """Tells the agent, if there is one that can be told."""
        if self._line is None:
            return
        if self._line.is_open:
            self._line.send(message)
        elif not self._is_cut_off:
            self._is_cut_off = True
            _LOGGER.warning("%s, which hears of no step any more [descriptors-closed]", _CLOSED)

    def answer_agent(self) -> bool:
        """Tells the agent where this rank is whenever it asks. Blocks; returns whether the agent is gone."""
        return self._line is not None and self._line.answer(lambda: self._axes.whereabouts(script_line()))

    def finish(self) -> None:
        """The script has ended well: leave the others in order. Collective if the group of all ranks was formed.

        Raises:
            RuntimeError: the script has closed what MPI needs to leave.
        """
        self._end_records()
        self.tell(Finishing())
        if self.formed:
            self._need_line()
            self.group.close()
        self._leave()
        self.tell(Left())

    def _end_records(self) -> None:
        if self.recorder is not None:
            self.recorder.close()

    def _need_line(self) -> None:
        """Before MPI uses the other descriptor that the launcher gave: a script closes both or none."""
        if self._line is not None and not self._line.is_open:
            raise RuntimeError(
                f"{_CLOSED}, over which MPI starts and ends. Close only what the script opened. [descriptors-closed]"
            )

    def fail(self, report: Failed) -> None:
        """The script has failed: tell the agent. The caller leaves without `finish`, which would hang."""
        self.tell(report)  # first: a disk that hangs takes two seconds
        self._end_records()
        if self._is_cut_off:
            print((report.traceback or report.exception).rstrip(), file=sys.stderr, flush=True)


def _of_so_many(size: int, place: "Place | None") -> "Place | None":
    """`place` in a cluster of `size` workers. Nobody connects to those that are missing."""
    if place is None:
        return None
    cluster, task = place
    present = cluster.addresses[WORKER]
    missing = (Address("127.0.0.1", port) for port in range(1, size - len(present) + 1))
    return ClusterSpec({**cluster.addresses, WORKER: (*present, *missing)}), task


def _alone() -> World:
    job_id = os.urandom(6).hex()  # another one in each run: the next one tidies up what this one leaves unfinished
    # Task, then rank 0 of 1, on its host, too.
    return World(WorkerIdentity(Task(WORKER, 0), 0, 1, 0, 1, generation=1, job_id=job_id, seed=0), _connect_alone)


def _connect_alone() -> "Group":
    from paceline.comm.solo import SoloGroup

    return SoloGroup()


def _refuse_to_connect() -> "Group":
    raise RuntimeError(
        "this process was started by a worker of `paceline run`, not by `paceline run` itself, so it is no rank "
        "of the job and cannot communicate with the ranks. Train in the worker's own process, or start this "
        f"program without the variable {environment.RANK} and the other variables of the worker. [not-a-rank]"
    )


def _launched(identity: WorkerIdentity) -> World:
    # Out of the environment: a program that the script starts is no rank, and its descriptors have other meanings.
    agent_fd = os.environ.pop(environment.AGENT_FD, None)
    pmi_fd = os.environ.pop(environment.PMI_FD, None)
    if not identity.in_world:  # nothing to exchange with the ranks: a world of its own
        identity = replace(identity, rank=0, world_size=1, local_rank=0, local_world_size=1)
    if identity.world_size == 1:
        connect = _connect_alone
    elif pmi_fd is None:
        connect = _refuse_to_connect
    else:
        wiring = MpiWiring(int(pmi_fd), identity.rank, identity.world_size, identity.local_world_size)
        wiring.arm()

        def connect() -> "Group":
            from paceline.comm.mpi_start import start_mpi  # NumPy and MPI: only a script that trains needs them

            return start_mpi(wiring)

    line = None if agent_fd is None else AgentLine(socket.socket(fileno=int(agent_fd)))
    told = {environment.TF_CONFIG: os.environ.get(environment.TF_CONFIG, "")}  # the script may write another one
    world = World(identity, connect, line, place=functools.partial(_told_place, told))
    bus.subscribe(AgentSink(world.tell))
    return world


def _told_place(variables: Mapping[str, str]) -> "Place | None":
    from paceline.cluster.tf_config import read_tf_config  # only a script that asks for it needs it

    return read_tf_config(variables)


_current: World | None = None
_lock = threading.Lock()


def current_world() -> World:
    """The world of this process: the launcher's, the one joined by hand, or a world of one."""
    global _current
    with _lock:
        if _current is None:
            _current = _launched(identity) if (identity := launched_identity(os.environ)) else _alone()
        return _current


def enter_world(world: World) -> None:
    """Makes `world` this process's world, in place of one of one.

    Raises:
        RuntimeError: this process already belongs to a world of several.
    """
    global _current
    if current_world().size > 1:
        raise RuntimeError(f"this process is already rank {current_world().rank} of {current_world().size} [mpi-world]")
    with _lock:
        _current = world
