"""How long do steps take with equal shares, by --shares auto, and by the best fixed shares? See README.md beside."""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

FIXED = {0: ("1,1",), 1: ("2,1", "3,2", "7,3"), 2: ("3,1", "5,2", "7,2")}
"""By the number of processes beside worker 1, shares of which one is about the best."""
SPEED = {0: "as fast", 1: "at 50 %", 2: "at 33 %"}
UNTIL = 100
"""Steps until shares are to hold."""


def job(spinners: int, shares: str, steps: int) -> dict[str, Any]:
    options = () if shares == "1,1" else ("--shares", shares)
    command = [*harness.PACELINE, "run", "--workers", "2", *options, str(HERE / "worker.py"), str(spinners), str(steps)]
    return harness.run_job(command)


def step_milliseconds(told: dict[str, Any], until: int) -> float:
    return 1e3 * statistics.fmean(told["seconds"][until:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=320)
    options = parser.parse_args()
    until = min(UNTIL, options.steps // 2)
    found: dict[tuple[int, str], list[float]] = {}
    changes: dict[int, list[float]] = {}
    for round_ in range(options.repeats):
        for spinners, fixed in FIXED.items():
            for shares in dict.fromkeys(["1,1", "auto", *fixed]):
                told = job(spinners, shares, options.steps)
                found.setdefault((spinners, shares), []).append(step_milliseconds(told, until))
                if shares == "auto":
                    changes.setdefault(spinners, []).append(max(told["changes"], default=0))
                print(f"round {round_ + 1}/{options.repeats}  {SPEED[spinners]}  {shares}", flush=True)
    rows = []
    for spinners, fixed in FIXED.items():
        # The shortest of three in each round would be shorter than any shares are, as steps vary.
        best = min((found[spinners, shares] for shares in fixed), key=statistics.median)
        equal, auto = found[spinners, "1,1"], found[spinners, "auto"]
        figures = [
            equal,
            auto,
            best,
            [one / other for one, other in zip(equal, auto, strict=True)],
            [one / other for one, other in zip(auto, best, strict=True)],
            changes[spinners],
        ]
        rows.append([f"worker 1 {SPEED[spinners]}", *(str(harness.Figure.of(each)) for each in figures)])
    headers = [
        "",
        "equal shares, ms a step",
        "auto",
        "best fixed",
        "equal over auto",
        "auto over best fixed",
        "last change, step",
    ]
    print()
    print(harness.table(headers, rows))


if __name__ == "__main__":
    main()
