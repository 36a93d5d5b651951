"""What the control groups (cgroups, versions 1 and 2) of this process let it use. Asks this host.

A container, a Slurm job or a systemd unit is a control group. The limits of all groups around it hold, too.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_GROUPS_OF_SELF = Path("/proc/self/cgroup")


def group_files(controller: str, first: str, second: str, *, listing: str | None = None) -> Iterator[str]:
    """The text of a file of this process's group and of those around it, innermost first; where there is none, nothing.

    Args:
        controller: ``"cpu"`` or ``"memory"``.
        first: The file in groups of version 1.
        second: The file in groups of version 2.
        listing: The text of ``/proc/self/cgroup``; None: this process's own.
    """
    for line in (_own_groups() if listing is None else listing).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            top, name = _ROOT / controller, first
        elif not controllers:
            top, name = _ROOT, second
        else:
            continue
        # Inside a container the path may be one that only the host knows; the container's own group is the top then.
        folder = top / path.strip("/")
        for place in (folder, *folder.parents):
            with contextlib.suppress(OSError):
                yield (place / name).read_text()
            if place == top:
                break


def _own_groups() -> str:
    try:
        return _GROUPS_OF_SELF.read_text()
    except OSError:
        return ""


def core_quota() -> float | None:
    """How many cores' worth of time this process may use; None without a limit."""
    periods = group_files("cpu", "cpu.cfs_period_us", "cpu.max")
    quotas = group_files("cpu", "cpu.cfs_quota_us", "cpu.max")
    found = (
        parse_quota(quota if quota == period else f"{quota} {period}")
        for quota, period in zip(quotas, periods, strict=False)
    )
    return min((quota for quota in found if quota is not None), default=None)


def parse_quota(text: str) -> float | None:
    """The limit in the text of a control group's ``cpu.max``, in cores.

    >>> parse_quota("150000 100000"), parse_quota("max 100000"), parse_quota("-1 100000")
    (1.5, None, None)
    """
    words = text.split()
    try:
        quota, period = float(words[0]), float(words[1])
    except (IndexError, ValueError):
        return None
    return quota / period if period > 0 and quota > 0 and quota != float("inf") else None


def memory_bytes() -> int:
    """How much memory this process and its like may use: the host's, or less where a control group has a limit."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    limits += [
        int(text) for text in group_files("memory", "memory.limit_in_bytes", "memory.max") if text.strip() != "max"
    ]
    return min(limits)


def free_memory_bytes(available: int) -> int:
    """How much of the host's `available` bytes of memory the control groups leave to this process.

    Files that the kernel keeps in memory count as free: it drops them when programs need the room.
    """
    limits = group_files("memory", "memory.limit_in_bytes", "memory.max")
    used = group_files("memory", "memory.usage_in_bytes", "memory.current")
    statistics = group_files("memory", "memory.stat", "memory.stat")
    left = [
        int(limit) - int(usage) + _cached_bytes(text)
        for limit, usage, text in zip(limits, used, statistics, strict=False)
        if limit.strip() != "max"
    ]
    return max(0, min([available, *left]))


def _cached_bytes(statistics: str) -> int:
    words = (line.split() for line in statistics.splitlines())
    found = {name: int(number) for name, number in (pair for pair in words if len(pair) == 2)}
    return found.get("total_inactive_file", found.get("inactive_file", 0))
