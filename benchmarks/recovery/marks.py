"""Moments of a job: a JSON line each, appended by its processes, read by the benchmark. Runs in every environment."""

import json
import os
import time
from pathlib import Path
from typing import Any

FOLDER = "BENCH_MARKS"
"""The variable that names the folder; a file for each rank."""

_once: set[str] = set()


def mark(what: str, step: int | None = None) -> None:
    """Notes that `what` has happened in this process now."""
    rank = int(os.environ.get("PACELINE_RANK") or os.environ.get("RANK") or 0)
    line = {"what": what, "step": step, "rank": rank, "pid": os.getpid(), "at": time.time()}
    with Path(os.environ[FOLDER], f"{rank}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def mark_once(what: str) -> None:
    """Notes only the first time in this process."""
    if what not in _once:
        _once.add(what)
        mark(what)


def read_marks(folder: Path) -> list[dict[str, Any]]:
    """All marks so far, by time."""
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines(keepends=True)]
    whole = [json.loads(line) for line in lines if line.endswith("\n")]  # one may be on its way
    return sorted(whole, key=lambda one: one["at"])
