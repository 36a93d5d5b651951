"""How the death of one process is told: its traceback, or its last words, and what ended it. Pure.

Lack of memory is named as the cause only if the kernel's counters show it: the signal may have come from elsewhere.
"""

import re
from dataclasses import dataclass

from paceline.errors import EXIT_CONFIGURATION
from paceline.launcher.generations.auxiliaries import STEADY_SECONDS
from paceline.launcher.generations.decisions import MAX_DEATHS, TellDeath, WorkerEnd, ended_text

_MAX_LINE_CHARACTERS = 300

_FROM_START = re.compile(
    r"WARNING: All log messages before absl::|I\d{4} [\d:.]+ |To enable the following instructions: "
)
"""What TensorFlow writes whenever it is imported."""

_LESS_MEMORY = "Use fewer workers, a smaller batch, or a host (or container) with more memory. [out-of-memory]"

_WHO_EXITS = (
    "Something ended the process without Python's own end: look for os._exit(), a C library that calls exit(), and a "
    "thread that does either. A script ends for its rank by coming to its end, or by sys.exit(), on all ranks alike."
)

_WHO_SENT = {
    "yes": f" The kernel killed this worker because memory ran out. {_LESS_MEMORY}",
    "perhaps": (
        " Paceline did not send this signal. The kernel killed a process on this host because memory ran out, probably "
        f"this worker. {_LESS_MEMORY}"
    ),
    "no": (
        " Paceline did not send this signal, and the kernel killed no process for lack of memory. Another program sent "
        "the signal: a scheduler, `kill`, or the container runtime. [killed]"
    ),
    "unknown": (
        " Paceline did not send this signal. A scheduler or a user sent the signal, or the kernel killed the worker "
        "because memory ran out; `dmesg | grep -i oom` shows the latter. [killed]"
    ),
}


@dataclass(frozen=True, slots=True)
class Witness:
    """What is known about a worker besides its end."""

    host: str
    pid: int
    last_words: tuple[str, ...]
    """The last lines of its stderr."""


def _origin_text(end: WorkerEnd) -> str:
    """Who sent the signal that ended a worker, with a leading space and the code of the message."""
    if end.injected_fault is not None:
        return f" --chaos injected this fault: {end.injected_fault}. [worker-failed]"
    return " [worker-failed]" if end.killed_from_outside is None else _WHO_SENT[end.killed_from_outside.memory]


def death_lines(name: str, end: WorkerEnd, witness: Witness, left: str = "") -> list[str]:
    """How a process died: its traceback, or the last that it wrote, and what ended it."""
    who = f"paceline: {name} ({witness.host})"
    if end.failed is not None:
        failed = f"{who} failed with exit code {end.failed.exit_code}{left}:"
        if not end.failed.traceback:
            return [failed, *_with_code(end.failed.exception).split("\n")]
        traceback = end.failed.traceback.rstrip("\n").split("\n")
        return [failed, *traceback, _with_code(f"{who}: {in_one_line(end.failed.exception)}")]
    if end.exit_code == 0:
        how = f"ended with code 0{' in the middle of training' if end.in_fit else ''}, without leaving the job"
        return [f"{who} {how}{left}. {_WHO_EXITS} [worker-left]"]
    words = [f"    {line}" for line in witness.last_words if not _FROM_START.match(line)]
    heading = [f"The last lines of {name}'s stderr:"] if words else []
    return [*heading, *words, f"{who} {ended_text(end.exit_code or 0)}{left}.{_origin_text(end)}"]


def outlived_lines(death: TellDeath, witness: Witness) -> list[str]:
    """On a process outside of the world that has died while the others go on."""
    if death.pause_seconds is not None:
        then = f"is started again{f' in {death.pause_seconds:g} s' if death.pause_seconds else ''}; the others go on"
    elif death.num_deaths >= MAX_DEATHS:
        then = f"{loop_text(death.num_deaths)}; the others go on without it. [crash-loop]"
    elif (death.end.failed.exit_code if death.end.failed else death.end.exit_code) == EXIT_CONFIGURATION:
        then = "is not started again, because it would fail again; the others go on without it. [evaluator]"
    else:
        then = "is not started again, as --max-restarts allows no more restarts; the others go on. [no-restart]"
    return [*death_lines(str(death.task), death.end, witness), f"paceline: {death.task} {then}"]


def loop_text(num_deaths: int) -> str:
    """On a process that dies again and again, to complete the sentence "ps 0 …"."""
    return (
        f"has died {num_deaths} times in a row, each time less than {STEADY_SECONDS:g} s after its start: the process "
        "is not started again"
    )


def in_one_line(text: str) -> str:
    """The beginning of a text on one line, with the code that closes it, and without the colours that Keras adds.

    >>> in_one_line("ValueError: in call().\\n\\n\\x1b[1mbad\\x1b[0m\\n")
    'ValueError: in call(). bad'
    """
    words = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
    if len(words) <= _MAX_LINE_CHARACTERS:
        return words
    return f"{words[:_MAX_LINE_CHARACTERS].rstrip()} ...{closing_code(words)}"


def closing_code(text: str) -> str:
    """The code that closes `text`, with the space before it; empty: there is none.

    >>> closing_code("ValueError: 3 rows [small-batch]"), closing_code("KeyError: 3")
    (' [small-batch]', '')
    """
    found = re.search(r" \[[a-z]+(-[a-z]+)*\]$", text)
    return found[0] if found else ""


def _with_code(text: str) -> str:
    """`text`, which closes with a code already if the exception is one of Paceline's own.

    >>> _with_code("ZeroDivisionError: division by zero"), _with_code("ValueError: 3 rows [small-batch]")
    ('ZeroDivisionError: division by zero [worker-failed]', 'ValueError: 3 rows [small-batch]')
    """
    return text if closing_code(text) else f"{text} [worker-failed]"
