"""What the kernel reports about a process that makes no progress or has ended suddenly."""

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from paceline.cluster.control_groups import group_files
from paceline.rendezvous.channel import MemoryShortage

_WORDS = {
    "R": "is running",
    "S": "sleeps",
    "D": "waits in the kernel, e.g. for a disk or a network file system that does not answer",
    "T": "is stopped (SIGSTOP, or a debugger); SIGCONT continues it",
    "t": "is held by a debugger",
    "Z": "has ended",
}


def is_stopped(pid: int) -> bool:
    """Whether the kernel does not let the process run until somebody says so."""
    try:
        return _letter(pid) in "Tt"
    except (OSError, IndexError):
        return False


def has_not_ended(pid: int) -> bool:
    """Whether the process, a child of this one that nobody has waited for yet, still runs."""
    try:
        return _letter(pid) not in "ZX"
    except (OSError, IndexError):
        return False


def _letter(pid: int) -> str:
    # After the name, which may hold anything, also half of a letter, in brackets. See proc(5).
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]


def process_state(pid: int) -> str:
    """What the process `pid` does, to complete the sentence "rank 1 …"."""
    try:
        letter = _letter(pid)
    except (OSError, IndexError):
        return "is gone"
    where = ""
    with contextlib.suppress(OSError):  # it has ended since, or the kernel does not tell (gVisor)
        where = Path(f"/proc/{pid}/wchan").read_text().strip()
    place = f", in {where}" if where not in ("", "0") else ""
    return f"{_WORDS.get(letter, f'is in state {letter}')}{place}"


class Standstill:
    """Remembers since when workers are stopped that have made no step yet. Pure.

    A worker that trains is missed by its steps (``generation.py``). One that is loading data or tracing its first step
    may take as long as it likes, unless it does not run at all: SIGSTOP, or a debugger.

    >>> standstill = Standstill(limit_seconds=5)
    >>> standstill.overdue({1}, now=10.0), standstill.overdue({1}, now=15.0), standstill.overdue({1}, now=16.0)
    ((), (1,), ())

    Args:
        limit_seconds: How long a worker may be stopped.
    """

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._since: dict[int, float] = {}
        self._told: set[int] = set()

    def overdue(self, stopped: Collection[int], now: float) -> tuple[int, ...]:
        """The ranks out of `stopped` that are so for too long; each is told once for each time it was stopped."""
        self._since = {rank: self._since.get(rank, now) for rank in stopped}
        self._told &= self._since.keys()
        late = tuple(
            rank for rank, since in self._since.items() if now - since >= self._limit_seconds and rank not in self._told
        )
        self._told.update(late)
        return late


_OF_HOST = Path("/proc/vmstat")


@dataclass(frozen=True, slots=True)
class MemoryKills:
    """How many processes were ended for want of memory so far; None: the kernel does not tell.

    >>> MemoryKills(2, 5).shortage_until(MemoryKills(3, 6)), MemoryKills(None, 5).shortage_until(MemoryKills(None, 6))
    ('yes', 'perhaps')
    >>> MemoryKills(2, 5).shortage_until(MemoryKills(2, 5)), MemoryKills(None, None).shortage_until(MemoryKills(0, 5))
    ('no', 'unknown')
    """

    of_group: int | None
    of_host: int | None

    def shortage_until(self, later: "MemoryKills") -> MemoryShortage:
        """What has happened between this and `later`."""
        grown = []
        for before, after in ((self.of_group, later.of_group), (self.of_host, later.of_host)):
            grown.append(None if before is None or after is None else after > before)
        if grown[0]:
            return "yes"
        if grown[1]:
            return "perhaps"
        return "unknown" if grown == [None, None] else "no"


def memory_kills() -> MemoryKills:
    """Those so far."""
    return MemoryKills(
        of_group=next(map(parse_kills, group_files("memory", "memory.oom_control", "memory.events")), None),
        of_host=_read(_OF_HOST),
    )


def _read(path: Path) -> int | None:
    try:
        return parse_kills(path.read_text())
    except OSError:
        return None


def parse_kills(text: str) -> int | None:
    """The counter in the text of ``/proc/vmstat``, ``memory.events`` or ``memory.oom_control``; pure.

    >>> parse_kills("pgfault 12\\noom_kill 3\\n"), parse_kills("pgfault 12\\n")
    (3, None)
    """
    counts = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
    return int(counts["oom_kill"]) if "oom_kill" in counts else None
