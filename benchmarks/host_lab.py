"""Hosts for benchmarks: those of the tests (`tests/hosts/lab.py`), namespaces of this machine on one switch."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS), str(_TESTS / "hosts")]

from lab import LAPTOP, TCP_ONLY, Lab, why_not  # noqa: E402
from secure_shell import why_not as why_no_ssh  # noqa: E402

NAMES = ("alpha", "beta")
ON_BOTH = ("--hosts", ",".join(f"{name}:1" for name in NAMES))


def two_hosts() -> Lab:
    """alpha and beta with ssh servers, each with its share of the cores, and a laptop.

    Raises:
        SystemExit: they cannot be made here; says why.
    """
    reason = why_not() or why_no_ssh()
    if reason:
        raise SystemExit(f"this benchmark needs hosts, which cannot be made here: {reason}")
    return Lab(len(NAMES), ssh=True, laptop=True, own_cores=True)


def job(lab: Lab, arguments: Sequence[str]) -> list[str]:
    """The command line of ``paceline run`` with `arguments`, typed on the laptop."""
    return lab.command(LAPTOP, [*harness.PACELINE, "run", *arguments], lab.folder)


def measure(lab: Lab, worker: Path, *arguments: str) -> dict[str, Any]:
    """Runs `worker` on both hosts and returns what its rank 0 has written, as `harness.run_job` does.

    MPI talks TCP only: the hosts have one kernel, and UCX would find that out.
    """
    script = [str(worker), *arguments]
    return harness.run_job(job(lab, [*ON_BOTH, "--env", "BENCH_RESULT", *script]), environment=TCP_ONLY)
