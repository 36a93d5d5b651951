"""What does it save to update the weights in one loop? See README.md beside this file."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKERS = 2
OPTIMIZERS = ("Adam", "SGD")


def alone_on(cores: set[int], command: list[str], optimizer: str) -> dict[str, Any]:
    """One process on some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return harness.run_job([*command, str(HERE / "worker.py"), optimizer])
    finally:
        os.sched_setaffinity(0, before)


PLAIN = [sys.executable]
ONE_WORKER = [*harness.PACELINE, "run", "--workers", "1"]


def workers(optimizer: str) -> dict[str, Any]:
    """Two workers of one core."""
    command = [
        *harness.PACELINE,
        "run",
        "--workers",
        str(WORKERS),
        "--no-drop-in",
        "--verify",
        "off",
        str(HERE / "worker.py"),
        optimizer,
    ]
    return harness.run_job(command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    cores = sorted(os.sched_getaffinity(0))[:WORKERS]
    os.sched_setaffinity(0, cores)
    alone: dict[str, dict[str, list[float]]] = {}
    steps: dict[str, dict[str, list[float]]] = {optimizer: {} for optimizer in OPTIMIZERS}
    for number in range(repeats):
        for optimizer, figures in _update_alone(cores[0]).items():
            for name, value in figures.items():
                alone.setdefault(optimizer, {}).setdefault(name, []).append(value)
        for optimizer in OPTIMIZERS:
            found = {
                **workers(optimizer),
                "one worker, 1 core": alone_on({cores[0]}, ONE_WORKER, optimizer)["one worker"],
                "plain, 1 core": alone_on({cores[0]}, PLAIN, optimizer)["plain"],
                "plain, 2 cores": alone_on({*cores}, PLAIN, optimizer)["plain"],
            }
            found.pop("memory_mb")
            for name, values in found.items():
                steps[optimizer].setdefault(name, []).extend(values)
        print(f"round {number + 1}/{repeats}", flush=True)
    _report(alone, steps)


def _update_alone(core: int) -> dict[str, Any]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        return harness.run_job([sys.executable, str(HERE / "update_alone.py")])
    finally:
        os.sched_setaffinity(0, before)


def _report(alone: dict[str, dict[str, list[float]]], steps: dict[str, dict[str, list[float]]]) -> None:
    rows = []
    for optimizer, figures in alone.items():
        operations, xla, loop, made = (
            harness.Figure.of(figures[name]) for name in ("operations", "XLA", "one loop", "made in")
        )
        saved = f"{operations.median / loop.median:.1f}"
        rows.append([optimizer, str(operations), str(xla), str(loop), saved, f"{made.median:.0f}"])
    headers = ["update of 2.77 M weights, ms", "operations", "XLA", "one loop", "operations / loop", "made in, ms"]
    print(f"\n{harness.table(headers, rows)}\n")
    for optimizer, found in steps.items():
        figures = {name: harness.Figure.of(values) for name, values in found.items()}
        ours = figures["one loop"].median
        rows = [[name, str(figure), f"{figure.median / ours:.2f}"] for name, figure in figures.items()]
        headers = [f"step of the demo's model, {optimizer}", "ms", "over one loop"]
        print(f"{harness.table(headers, rows)}\n")


if __name__ == "__main__":
    main()
