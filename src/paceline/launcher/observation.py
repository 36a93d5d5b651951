"""``--observe DIR`` in the launcher: keeps the events of the job, and makes the timeline of them at its end.

What goes wrong costs one line, whoever met it, and not the job.
"""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from paceline.errors import ConfigurationError
from paceline.events.bus import Sink, guarded
from paceline.events.head_events import Notice
from paceline.events.json_lines import JsonLines
from paceline.events.worker_events import (
    BatchDone,
    EpochBegan,
    EpochEnded,
    Event,
    RecordsFailed,
    StepDone,
    StepsAwaited,
    StepsTimed,
    TraceBegan,
)
from paceline.report.kept_job import EVENTS, begin
from paceline.report.making import make_timeline

_CHIEF = 0
_OFTEN = (StepDone, BatchDone, StepsAwaited, TraceBegan, EpochBegan, Notice)
"""Events of which ranks keep more themselves, or that say nothing to who looks later."""
_MANY = 2_048
"""So many of a kind are kept whole."""


@contextmanager
def observed(directory: Path, job_id: str, program: str, tell: Callable[[str], None]) -> Iterator[Sink]:
    """While this lasts, what happens is kept in `directory`; at the end it has a timeline.

    Args:
        directory: That of the option.
        job_id: The job's name.
        program: What its workers run.
        tell: Called with a line for the user.

    Yields:
        What is to hear the events of the job.
    """
    has_told = False

    def tell_once(reason: str) -> None:
        nonlocal has_told
        if not has_told:
            has_told = True
            tell(f"--observe {directory}: {reason} [observe]")

    with ExitStack() as lifetimes:
        sink: Sink = _ignore
        try:
            begin(directory, job_id, program, socket.gethostname())
            lost = "the rest of what happens is not kept: the disk takes nothing more; the job continues"
            file = lifetimes.enter_context(JsonLines(directory / EVENTS, lambda _: tell_once(lost), time.monotonic))
        except (OSError, ConfigurationError) as fault:
            tell_once(f"nothing is kept, and the job continues: {fault}")
        else:
            sink = guarded(KeptEvents(file, tell_once))
            lifetimes.callback(lambda: _make(directory, tell_once))
        yield sink


class KeptEvents:
    """A sink that passes on what is worth keeping, in a bounded number.

    Args:
        keep: Is given that.
        tell: Called with the reason why a rank keeps nothing any more.
    """

    def __init__(self, keep: Sink, tell: Callable[[str], None]) -> None:
        self._keep = keep
        self._tell = tell
        self._counts: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        """Passes the event on, or not."""
        if isinstance(event, RecordsFailed):
            self._tell(f"rank {event.rank} keeps no steps any more, and trains on: {event.reason}")
        if isinstance(event, _OFTEN) or (isinstance(event, EpochEnded | StepsTimed) and event.rank != _CHIEF):
            return
        kind = type(event).__name__
        number = self._counts[kind]
        self._counts[kind] += 1
        if is_kept(number):
            self._keep(event)


def is_kept(number: int) -> bool:
    """Whether the event with this number, of those of its kind, is kept: all of some, and of more every other one.

    >>> [number for number in range(_MANY - 2, _MANY + 5) if is_kept(number)]
    [2046, 2047, 2048, 2050, 2052]
    """
    return number % (1 << (number // _MANY).bit_length()) == 0


def _make(directory: Path, tell: Callable[[str], None]) -> None:
    try:
        for line in make_timeline(directory):
            tell(line)
    except Exception as fault:  # what is made of the records must not change how the job ends
        tell(f"the timeline cannot be made: {fault}. The records are kept; try `paceline report {directory}`")


def _ignore(_: Event) -> None:
    return
