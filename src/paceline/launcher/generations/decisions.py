"""What a generation is told, what it decides, and how it ended: the cause, and the end of each rank. Values only.

They pass between ``generation.py``, which decides, and ``supervision.py``, which sees and acts; ``report.py`` has the
messages.
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace

from paceline.cluster.launched import PREEMPTION_SIGNALS
from paceline.cluster.spec import Task
from paceline.errors import EXIT_FAILED, EXIT_PREEMPTED, EXIT_SIGNALLED, EXIT_UNAVAILABLE
from paceline.events.head_events import HostLost, LastWorkBegan, PreemptionBegan, RankEnded, RanksWaiting, StuckFound
from paceline.launcher.generations.names import Names
from paceline.launcher.workers.crew import UNSEEN_EXIT
from paceline.rendezvous.agent_messages import Kill, Replace
from paceline.rendezvous.channel import Failed, KilledFromOutside, Message


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker reported an exception, exited with another code than 0, was killed, or exited with 0 in the group, which
    it had not left.
    """

    rank: int
    exit_code: int
    """As `subprocess` tells it: below 0 for a signal."""
    failed: Failed | None
    """What the worker could still say; None for a sudden end."""
    waiting: tuple[int, ...]
    """The ranks that would have waited for it for ever, because it had not joined the group, or had not left it."""


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker exited with 0 before it joined, while others wait for it."""

    rank: int
    waiting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupNotFormed:
    """Every rank asked for the group, and it did not stand in time."""

    missing: tuple[int, ...]
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The launcher was told to stop by a signal."""

    signal: signal.Signals


@dataclass(frozen=True, slots=True)
class Hung:
    """No rank made a step for too long."""

    ranks: tuple[int, ...]
    """Those that the others are known to wait for; empty: no rank is known to be the cause."""
    step: int | None
    """The last one that was told of."""
    timeout_seconds: float
    states: tuple[tuple[int, str], ...]
    """Where each rank was, to complete the sentence "rank 1 …"."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """The job was told to leave, and takes snapshots; whether the last one was still written, its workers say."""

    step: int | None
    """The last one that was told of."""


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """What became of a process."""

    rank: int
    exit_code: int | None
    """None: it did not even end when it was killed."""
    failed: Failed | None
    ended_before_stop: bool
    gone: bool = False
    """It was lost with its host."""
    killed_from_outside: KilledFromOutside | None = None
    """What is known about the signal that ended it, if Paceline did not send that signal."""
    injected_fault: str | None = None
    """The last fault that ``--chaos`` injected into it."""
    in_fit: bool = False
    """Whether it made steps when it ended."""


MAX_DEATHS = 6
"""In a row: with that many, a process outside of the world is not started again."""


@dataclass(frozen=True, slots=True)
class RoleFailed:
    """A process outside of the world died, and its role does not allow the others to go on."""

    task: Task
    end: WorkerEnd
    num_deaths: int
    """In a row, up to the last one."""


Cause = WorkerFailed | RoleFailed | WorkerLeft | GroupNotFormed | Interrupted | HostLost | Hung | Preemption


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a generation; `cause` is None when every worker exited with 0."""

    cause: Cause | None
    workers: tuple[WorkerEnd, ...]

    def completed(self, exit_codes: Mapping[int, int]) -> "Outcome":
        """With the `exit_codes`, by rank, of those whose end was seen only after they had been given up."""
        ends = (
            end if end.exit_code is not None else replace(end, exit_code=exit_codes.get(end.rank))
            for end in self.workers
        )
        return Outcome(self.cause, tuple(ends))

    @property
    def has_failed(self) -> bool:
        """Whether a failure ended it, and not its scripts, a user or a scheduler."""
        return self.cause is not None and not isinstance(self.cause, Preemption | Interrupted)

    @property
    def exit_code(self) -> int:
        """The exit code of the whole job: the first failure's."""
        match self.cause:
            case None:
                return 0
            case WorkerFailed(exit_code=code, failed=failed):
                return shell_exit_code(failed.exit_code if failed else code) or EXIT_FAILED
            case RoleFailed(end=end):
                return shell_exit_code(end.failed.exit_code if end.failed else end.exit_code or 0) or EXIT_FAILED
            case Preemption():
                return EXIT_PREEMPTED
            case WorkerLeft() | GroupNotFormed() | HostLost() | Hung():
                return EXIT_UNAVAILABLE
            case Interrupted(signal=number):
                return EXIT_SIGNALLED + number


def ended_text(code: int) -> str:
    """How a process ended.

    >>> ended_text(3), ended_text(-9)
    ('exited with code 3', 'was killed by signal 9 (SIGKILL)')
    """
    if code == UNSEEN_EXIT:
        return "died without a message (killed, or crashed outside Python)"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = f" ({signal.Signals(-code).name})"
    except ValueError:  # a real-time signal has no name
        name = ""
    return f"was killed by signal {-code}{name}"


def cause_text(cause: Cause, names: Names) -> str:
    """What happened, in one phrase."""
    match cause:
        case WorkerFailed(rank=rank, failed=None, exit_code=0):
            return f"{names.of(rank)} ended with code 0, without leaving the job"
        case WorkerFailed(rank=rank, failed=failed, exit_code=code):
            return f"{names.of(rank)} {'failed' if failed is not None else ended_text(code)}"
        case RoleFailed(task=task, end=end):
            return f"{task} {'failed' if end.failed is not None else ended_text(end.exit_code or 0)}"
        case WorkerLeft(rank=rank):
            return f"{names.of(rank)} ended before it joined the group"
        case GroupNotFormed():
            return "not all ranks connected in time"
        case HostLost(host=host):
            return f"host {host} is lost"
        case Hung(timeout_seconds=seconds):
            chief = names.lone_chief
            return f"{chief} made no step for {seconds:g} s" if chief else f"no rank made a step for {seconds:g} s"
        case Preemption():
            return "the job was preempted"
        case Interrupted(signal=number):
            return f"the launcher received {number.name}"


def exit_code_between(number: signal.Signals, *, takes_snapshots: bool) -> int:
    """Of a launcher that a signal ends while no generation lives: before the first one, or in the pause behind one."""
    is_preemption = takes_snapshots and number in PREEMPTION_SIGNALS
    return EXIT_PREEMPTED if is_preemption else EXIT_SIGNALLED + number


def shell_exit_code(code: int) -> int:
    """`subprocess`'s return code as a shell tells it.

    >>> shell_exit_code(3), shell_exit_code(-9)
    (3, 137)
    """
    return code if code >= 0 else EXIT_SIGNALLED - code


@dataclass(frozen=True, slots=True)
class Said:
    """Input: a worker sent a message."""

    rank: int
    message: Message


@dataclass(frozen=True, slots=True)
class SignalReceived:
    """Input: the launcher was told to stop."""

    signal: signal.Signals
    is_relayed: bool = False
    """Whether the agent of another host was told. A scheduler tells all of them, which is one order, not many."""


Input = Said | SignalReceived | RankEnded | HostLost
"""The last two are events. All that a process had said before its end was fed in before that."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Action: tell the user that the job is being stopped, and why."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class Examine:
    """Action: have these workers say where they are, write their stacks, and tell what the kernel says of them."""

    ranks: tuple[int, ...]
    seconds: float | None
    """How long there was no step; None: they only say where they are, and no user reads of that."""


@dataclass(frozen=True, slots=True)
class TellDeath:
    """Action: tell the user that a process outside of the world has died, and that the others go on."""

    task: Task
    end: WorkerEnd
    num_deaths: int
    """In a row."""
    pause_seconds: float | None
    """Until the process is started again; 0: at once; None: it is not."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """Action: SIGTERM to these processes."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Action: report and leave; nothing follows."""

    outcome: Outcome


Emitted = RanksWaiting | PreemptionBegan | LastWorkBegan | StuckFound
Action = Announce | TellDeath | Examine | Terminate | Done | Replace | Kill | Emitted
"""`Replace` and `Kill` are orders, which the crews obey as they are; events are emitted."""
