"""The launcher's messages to the user. Pure.

First comes one line for each other rank. Then comes the traceback of the rank that failed; one that was killed leaves
no traceback, so the last lines of its stderr are shown. Then comes a line with the rank, its host and what ended it: it
stays on the screen below a long traceback, and CI logs end with it. Only what to type to continue stands below it.
"""

import signal
from collections.abc import Mapping, Sequence

from paceline.cluster.launched import PREEMPTION_SIGNALS
from paceline.errors import EXIT_PREEMPTED
from paceline.events.head_events import HostLost
from paceline.launcher.generations.deaths import Witness, closing_code, death_lines, in_one_line, loop_text
from paceline.launcher.generations.decisions import (
    MAX_DEATHS,
    Cause,
    GroupNotFormed,
    Hung,
    Interrupted,
    Outcome,
    Preemption,
    RoleFailed,
    WorkerEnd,
    WorkerFailed,
    WorkerLeft,
    cause_text,
    ended_text,
)
from paceline.launcher.generations.names import Names, ranks_text
from paceline.launcher.workers.crew import START_AGAIN
from paceline.launcher.workers.host_resources import CoreShare

_SAME_SCRIPT = (
    "All ranks must run the same script, and each must create the strategy (or call fit): look for a "
    "condition on the rank, an early exit, or a `__main__` guard that only some ranks pass."
)
_ENDS_OF_PREEMPTED = (0, EXIT_PREEMPTED, *(-number for number in PREEMPTION_SIGNALS))

_MAX_NAMED_HOSTS = 16
_MAX_NAMED_RANKS = 16


def start_text(num_workers: int, shares: Sequence[CoreShare] | None, num_gpus: int, job_id: str) -> str:
    """The line at the start of a job.

    >>> start_text(2, [CoreShare((0,), 1), CoreShare((1,), 1)], 0, "3f2a")
    '2 workers on this host, 1 core each; job 3f2a'
    """
    parts = [f"{counted(num_workers, 'worker')} on this host"]
    if num_gpus:
        parts.append("1 GPU each" if num_workers <= num_gpus else f"sharing {counted(num_gpus, 'GPU')}")
    if shares is None:
        parts.append("not bound to cores")
    else:
        cores = {core for share in shares for core in share.cores}
        smallest, largest = (choose(len(share.cores) for share in shares) for choose in (min, max))
        if len(cores) < num_workers:
            parts.append(f"sharing {counted(len(cores), 'core')}")
        else:
            parts.append(f"{counted(largest, 'core') if smallest == largest else f'{smallest}-{largest} cores'} each")
    return f"{', '.join(parts)}; job {job_id}"


def hosts_text(hosts: Sequence[tuple[str, int]], job_id: str, noun: str = "rank") -> str:
    """The line at the start of a job on several hosts, where `noun` is what its workers are counted as.

    >>> hosts_text([("a", 2), ("b", 1)], "3f2a")
    '3 workers on 2 hosts (a: ranks 0-1, b: rank 2); job 3f2a'
    """
    first, parts = 0, []
    for host, num_workers in hosts:
        parts.append(f"{host}: {ranks_text(range(first, first + num_workers), noun)}")
        first += num_workers
    shown = parts if len(parts) <= _MAX_NAMED_HOSTS else [*parts[:_MAX_NAMED_HOSTS], "..."]
    return f"{counted(first, 'worker')} on {counted(len(hosts), 'host')} ({', '.join(shown)}); job {job_id}"


def counted(number: int, noun: str) -> str:
    """A number of things, such as ``2 steps``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def stopping_text(cause: Cause, num_workers: int, names: Names) -> str | None:
    """The line when the job begins to stop; None when there is no other rank to stop."""
    who = "the job" if names.lone_chief else counted(num_workers, "worker")
    match cause:
        case Interrupted(signal=number):
            again = "; Ctrl-C again kills at once" if number == signal.SIGINT else ""
            return f"stopping {who} ({number.name}){again}"
        case Preemption():
            return f"stopping {who} now; steps after the newest snapshot are lost"
        case WorkerFailed() if num_workers == 1:
            return None
        case _:
            return f"{cause_text(cause, names)}; stopping the job"


def stopped_text(number: signal.Signals, generation: int | None = None) -> str:
    """The last line of a launcher that a signal ended between generations; `generation` would have been the next one.

    >>> stopped_text(signal.SIGTERM, 2)
    'paceline: stopped by SIGTERM, before generation 2 started. [stopped]'
    """
    match generation:
        case None:
            when = "while no worker was running on this host"
        case 1:
            when = "before the workers started"
        case _:
            when = f"before generation {generation} started"
    return f"paceline: stopped by {number.name}, {when}. [stopped]"


def report_lines(outcome: Outcome, witnesses: Mapping[int, Witness], names: Names) -> list[str]:
    """The last lines of a job that failed or was stopped; none for a job that succeeded."""
    if outcome.cause is None:
        return []
    cause = outcome.cause
    lines = []
    same = []
    for end in outcome.workers:
        if isinstance(cause, WorkerFailed | WorkerLeft) and end.rank == cause.rank:
            continue
        if _failed_alike(end, cause):
            same.append(end.rank)
        else:
            lines += _consequence(end, cause, witnesses[end.rank], names)
    if same and isinstance(cause, WorkerFailed):
        lines.append(f"paceline: {names.all_of(same)} failed with the same error as {names.of(cause.rank)}")
    return lines + _cause_lines(cause, outcome.workers, witnesses, names)


def _failed_alike(end: WorkerEnd, cause: Cause) -> bool:
    """Whether an error that explains itself, and that all ranks raise together, is told already: the cause's."""
    if not isinstance(cause, WorkerFailed) or cause.failed is None or end.failed is None:
        return False
    return not end.failed.traceback and end.failed.exception == cause.failed.exception


def _consequence(end: WorkerEnd, cause: Cause, witness: Witness, names: Names) -> list[str]:
    """How one rank ended after the `cause`: one line, or none if that is not news."""
    rank = f"paceline: {names.of(end.rank)}"
    if end.gone and isinstance(cause, Preemption):
        return [f"{rank} was lost with host {witness.host}"]
    if end.gone:
        return []  # the line of the cause, or that of the lost host, covers it
    if end.exit_code is None:
        return [f"{rank} (pid {witness.pid} on {witness.host}) had not ended yet some seconds after it was killed"]
    if end.failed is not None:
        return [f"{rank} failed later: {end.failed.first_line}"]
    if isinstance(cause, Preemption):
        expected = _ENDS_OF_PREEMPTED if end.ended_before_stop else (*_ENDS_OF_PREEMPTED, -signal.SIGKILL)
        return (
            [] if end.exit_code in expected else [f"{rank} {ended_text(end.exit_code)} while all ranks were stopping"]
        )
    if end.ended_before_stop or isinstance(cause, Interrupted) or (isinstance(cause, Hung) and names.lone_chief):
        return []
    if end.killed_from_outside is not None:
        return [f"{rank} {ended_text(end.exit_code)}, too; Paceline did not send that signal"]
    if end.exit_code in (0, -signal.SIGTERM, -signal.SIGKILL):
        return [f"{rank} was stopped because {cause_text(cause, names)}"]
    return [f"{rank} {ended_text(end.exit_code)} later"]


FROM_SNAPSHOT = f"{START_AGAIN.removesuffix('.')}: training continues from the newest snapshot."


def why_text(cause: Cause | None, places: Mapping[int, str], names: Names, *, takes_snapshots: bool) -> str:
    """Why ranks are told to end, which completes the sentence "rank 0 …", for users of workers that were started by
    hand: no report follows on their terminals.

    Args:
        cause: None: all ranks were told to leave.
        places: Each rank with its host and address.
        names: Of the ranks.
        takes_snapshots: Whether training can go on from one.
    """
    again = FROM_SNAPSHOT if takes_snapshots else START_AGAIN
    match cause:
        case None:
            return "was told to stop, as another rank was: a last snapshot is written if the step ends in time"
        case WorkerFailed(rank=rank, failed=failed) if failed is not None:
            because, code = f"{places[rank]} failed: {in_one_line(failed.exception)}", "[rank-lost]"
            if own := closing_code(because):
                because, code = because.removesuffix(own), own.strip()
        case WorkerFailed(rank=rank, exit_code=0):
            because, code = f"{places[rank]} ended with code 0, without leaving the job", "[worker-left]"
        case WorkerFailed(rank=rank, exit_code=exit_code):
            because, code = f"{places[rank]} {ended_text(exit_code)}", "[rank-lost]"
        case HostLost(ranks=[rank, *_], reason=reason):
            because, code = f"{places[rank]} {reason}", "[rank-lost]"
        case WorkerLeft(rank=rank):
            because, code = f"{places[rank]} ended before it joined the group", "[worker-left]"
        case Hung(ranks=blamed, states=states):
            shown = sorted(states, key=lambda state: state[0] not in blamed)[:_MAX_NAMED_RANKS]
            where = "; ".join(f"{names.of(rank)} {state}" for rank, state in sorted(shown))
            more = f"; and {counted(len(states) - len(shown), 'rank')} more" if len(shown) < len(states) else ""
            because, code = f"{_hung_text(cause, names)}. {where}{more}", "[hang]"
        case GroupNotFormed():
            because, code = cause_text(cause, names), "[start-timeout]"
        case Preemption() | Interrupted():
            because, code = cause_text(cause, names), "[stopped]"
        case _:
            because, code = cause_text(cause, names), "[rank-lost]"
    because = because if because.endswith("...") else f"{because.removesuffix('.')}."
    return f"was stopped, because {because} {again} {code}"


def _cause_lines(cause: Cause, ends: Sequence[WorkerEnd], witnesses: Mapping[int, Witness], names: Names) -> list[str]:
    match cause:
        case WorkerFailed(rank=rank, exit_code=0, failed=None, waiting=waiting):
            left = f"; {ranks_text(waiting)} would wait for rank {rank} for ever"
            return death_lines(names.of(rank), ends[rank], witnesses[rank], left)
        case WorkerFailed(rank=rank, waiting=waiting):
            left = f", before it joined the group; {ranks_text(waiting)} waited for rank {rank}" if waiting else ""
            return death_lines(names.of(rank), ends[rank], witnesses[rank], left)
        case RoleFailed(task=task, end=end, num_deaths=num_deaths):
            again = [f"paceline: {task} {loop_text(num_deaths)}, and the job ends. [crash-loop]"]
            return [*death_lines(str(task), end, witnesses[end.rank]), *(again if num_deaths >= MAX_DEATHS else [])]
        case WorkerLeft(rank=rank, waiting=waiting):
            return [
                f"paceline: rank {rank} ({witnesses[rank].host}) ended with code 0 before it joined the group; "
                f"{ranks_text(waiting)} would wait for rank {rank} for ever. {_SAME_SCRIPT} [worker-left]"
            ]
        case GroupNotFormed(missing=missing, timeout_seconds=seconds):
            return [
                f"paceline: every rank began to connect, but after {seconds:g} s {ranks_text(missing)} "
                "had no connection to the others. If this host is slow, raise --start-timeout. "
                "[start-timeout]"
            ]
        case HostLost(ranks=ranks, host=host, reason=reason):
            ran = f", where {names.all_of(ranks)} ran," if ranks else ""
            return [f"paceline: host {host}{ran} {reason}. [host-lost]"]
        case Hung():
            return _hang_lines(cause, ends, names)
        case Preemption(step=step):
            where = "" if step is None else f" after step {step}"
            return [f"paceline: the job was told to stop, and stopped{where}. [stopped]"]
        case Interrupted():
            return []


def _hang_lines(cause: Hung, ends: Sequence[WorkerEnd], names: Names) -> list[str]:
    """Where each rank was, and which ranks are known to be the cause."""
    injected = {
        end.rank: f"; --chaos injected this fault: {end.injected_fault}"
        for end in ends
        if end.injected_fault is not None
    }
    states = [f"paceline: {names.of(rank)} {state}{injected.get(rank, '')}" for rank, state in cause.states]
    return [
        *states,
        f"paceline: {_hung_text(cause, names)}. The stacks above show where each rank was. If such pauses are normal, "
        "raise --hang-timeout. [hang]",
    ]


def _hung_text(cause: Hung, names: Names) -> str:
    where = "" if cause.step is None else f" after step {cause.step}"
    if names.lone_chief:  # nobody waits for it in a collective
        return f"{names.lone_chief} made no step for {cause.timeout_seconds:g} s{where}"
    blamed = f"the others wait for {ranks_text(cause.ranks)}" if cause.ranks else "no rank is known to be the cause"
    return f"no step for {cause.timeout_seconds:g} s{where}; {blamed}"
