"""The processes of this machine as they were when somebody looked: one that ends meanwhile is not there, and no error.

marked(_MARK, mark)                         those that were started with a variable, and what they started
until_gone(lambda: marked(_MARK, mark), 5)  what is still there 5 s later: [] at once when nothing is
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SOON_SECONDS = 60.0
"""For what should happen at once, on a machine that is busy. Scripts of tests sleep for 600 s: what comes earlier did
not come by itself. A test that can only pass or fail by seconds is mended, not given fewer."""

_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class Seen:
    """A process that ran when it was looked at. One that nobody has waited for yet has ended, and is not seen."""

    pid: int
    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    process: psutil.Process = field(repr=False)
    """Of its methods, those that look at it raise `psutil.NoSuchProcess` when it has ended since."""

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; nothing if it has ended, also when another process has its number by now."""
        with contextlib.suppress(psutil.Error):
            self.process.send_signal(number)


def running(pids: Iterable[int]) -> list[Seen]:
    """Those of `pids` that run."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            seen = Seen(pid, process.name(), tuple(process.cmdline()), process.environ(), process)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(seen)
    return found


def marked(variable: str, value: str) -> list[Seen]:
    """Those that were started with `variable` set to `value`."""
    mark = f"{variable}={value}".encode()
    return running(pid for pid in psutil.pids() if mark in _environment(pid).split(b"\0"))


def until_gone(look: Callable[[], list[Seen]], limit_seconds: float = SOON_SECONDS) -> list[Seen]:
    """What `look` still sees after so many seconds."""
    give_up_at = time.monotonic() + limit_seconds
    while (left := look()) and time.monotonic() < give_up_at:
        time.sleep(_PAUSE_SECONDS)
    return left


def end_all(variable: str, value: str) -> None:
    """Kills those that are `marked`, also what they start meanwhile."""

    def killed() -> list[Seen]:
        left = marked(variable, value)
        for one in left:
            one.send(signal.SIGKILL)
        return left

    left = until_gone(killed)
    assert not left, f"not ended by SIGKILL: {left}"


def _environment(pid: int) -> bytes:
    """As the process was started with it; read without psutil, as it is read of all processes, over and over."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or is another user's
        return b""
