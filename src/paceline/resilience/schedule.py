"""When a snapshot is due: after so many steps or seconds, or because the job is told to leave.

SIGTERM and SIGUSR1 are sent before a host is taken away: they are noted, and the ranks agree on a step to stop at.
"""

import os
import re
import signal
import sys
import threading
from dataclasses import dataclass
from types import FrameType

from paceline.cluster.launched import PREEMPTION_SIGNALS
from paceline.comm.step_flags import StepFlags
from paceline.comm.world import World
from paceline.errors import EXIT_PREEMPTED
from paceline.rendezvous.channel import KeepsSnapshots

_TEXT = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>s?)")


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every so many steps, every so many seconds, whichever comes first; with neither only where a `fit` ends.

    Args:
        every_steps: Steps between snapshots, from 1.
        every_seconds: Seconds between snapshots, as the chief's clock has it.

    Raises:
        ValueError: an interval is not positive.
    """

    every_steps: int | None = None
    every_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("every_steps", "every_seconds"):
            interval = getattr(self, name)
            if interval is not None and not interval > 0:
                raise ValueError(f"{name}={interval}: expected a positive number [argument]")

    def crosses(self, before: int, now: int) -> bool:
        """Whether a multiple of `every_steps` lies in (`before`, `now`], steps of the job."""
        return self.every_steps is not None and now // self.every_steps > before // self.every_steps

    def has_passed(self, seconds: float) -> bool:
        """Whether it is time, so many seconds after the last snapshot."""
        return self.every_seconds is not None and seconds >= self.every_seconds


def parse_schedule(text: str) -> Schedule:
    """The schedule of ``--snapshot-every``: ``100`` steps, ``30s``.

    >>> parse_schedule("30s")
    Schedule(every_steps=None, every_seconds=30.0)

    Raises:
        ValueError: neither.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None or not float(match["number"]) or (not match["unit"] and "." in match["number"]):
        raise ValueError(
            f"--snapshot-every (PACELINE_SNAPSHOT_EVERY) is {text!r}; expected a number of steps, such as 100, or of "
            "seconds, such as 30s"
        )
    if match["unit"]:
        return Schedule(every_seconds=float(match["number"]))
    return Schedule(every_steps=int(match["number"]))


class Preemption:
    """Notes the signals of one process.

    Inside a `fit` they are a wish that all ranks hear of; outside there is no step to stop at, nothing is lost that the
    newest snapshot does not hold, and the process leaves at once. When the script has ended, the process leaves by
    itself, and a signal must not cut its exit handlers off.

    Args:
        flags: Where the preemption is noted.
    """

    def __init__(self, flags: StepFlags) -> None:
        self._flags = flags
        self._in_fit = False
        self._script_has_ended = False

    def watch(self) -> None:
        """Begins to note them; only the main thread can, elsewhere signals do what they did before."""
        if threading.current_thread() is threading.main_thread():
            for number in PREEMPTION_SIGNALS:
                signal.signal(number, self._note)

    def enter_fit(self) -> None:
        """From now on a signal waits for the end of a step."""
        self._in_fit = True

    def leave_fit(self) -> None:
        """From now on a signal ends the process."""
        self._in_fit = False

    def end_script(self) -> None:
        """From now on a signal changes nothing."""
        self._script_has_ended = True

    def leave_if_told(self) -> None:
        """After a `fit`.

        Raises:
            SystemExit: a signal has come and found no step to stop at.
        """
        if self._flags.preemption_requested:
            sys.exit(EXIT_PREEMPTED)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        # Under no launcher nobody says when the script ends; the interpreter first takes its main thread for ended.
        if self._script_has_ended or not threading.main_thread().is_alive():
            return
        self._flags.preemption_requested = True
        if not self._in_fit:
            sys.exit(EXIT_PREEMPTED)  # by its name: a rank that was started by hand tells its agent there


_watched: dict[int, Preemption] = {}


def preemption_of(world: World) -> Preemption:
    """The one that notes this process's signals; begins to when first asked for, and tells the agent
    that this rank leaves by itself when it is told to stop.
    """
    if os.getpid() not in _watched:
        _watched[os.getpid()] = Preemption(world.flags)
        _watched[os.getpid()].watch()
        world.tell(KeepsSnapshots())
    return _watched[os.getpid()]


def end_preemption() -> None:
    """The script of this process has ended, well or not; signals that are noted change nothing any more."""
    if os.getpid() in _watched:
        _watched[os.getpid()].end_script()
