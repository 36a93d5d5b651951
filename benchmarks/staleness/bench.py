"""What does staleness cost in accuracy, and how long until 95 %? See README.md beside this file."""

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import curves  # noqa: E402
import harness  # noqa: E402
import slowed_cluster  # noqa: E402

BOUNDS = ("0", "1", "3", "none")
STEPS, EVERY = 1000, 50
ENOUGH = 0.95
STEPS_TO_ENOUGH = {"data_parallel": (200, 10), "parameter_servers": (400, 20)}
"""Steps, and after how many weights are kept: the same number of rows."""
SLOWDOWNS = (1, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["accuracy", "time"], help="one half of the benchmark")
    options = parser.parse_args()
    if options.only != "time":
        accuracy(options.repeats)
    if options.only != "accuracy":
        times(options.repeats)


def accuracy(repeats: int) -> None:
    """The courses of trainings with the same number of steps, by `max_staleness`; draws staleness.svg."""
    rounds: dict[str, list[Mapping[str, Any]]] = {bound: [] for bound in BOUNDS}
    for round_ in range(repeats):
        for bound in BOUNDS:
            rounds[bound].append(slowed_cluster.result_of("parameter_servers", str(STEPS), str(EVERY), bound))
            print(f"round {round_ + 1}/{repeats}  max_staleness={bound}", flush=True)
    courses = {}
    rows = []
    for bound, results in rounds.items():
        name = f"max_staleness={bound}" if bound != "none" else "no bound"
        middle = [statistics.median(point) for point in zip(*(one["accuracy"] for one in results), strict=True)]
        courses[name] = (results[0]["rows"], middle)
        figures = [
            harness.Figure.of([one["staleness"][0] for one in results]),
            harness.Figure.of([one["staleness"][1] for one in results]),
            *(harness.Figure.of([100 * one["accuracy"][at] for one in results]) for at in (4, -1)),
            harness.Figure.of([one["rows"][-1] / one["seconds"][-1] for one in results]),
        ]
        rows.append([name, *map(str, figures)])
    (HERE / "staleness.svg").write_text(curves.drawn(courses, "rows trained on", "accuracy on 2,000 other digits"))
    headers = [
        "bound",
        "mean staleness",
        "largest",
        f"accuracy after {5 * EVERY} steps, %",
        f"after {STEPS}, %",
        "rows/s",
    ]
    print()
    print(harness.table(headers, rows))


def times(repeats: int) -> None:
    """Seconds from the first step to the first kept weights that are good enough."""
    rounds: list[Mapping[tuple[str, int], float]] = []
    for round_ in range(repeats):
        found = {}
        for slowdown in SLOWDOWNS:
            for kind, (steps, every) in STEPS_TO_ENOUGH.items():
                told = slowed_cluster.result_of(kind, str(steps), str(every), "none", "--computing", slowdown=slowdown)
                found[kind, slowdown] = seconds_to_enough(told)
        rounds.append(found)
        print(f"round {round_ + 1}/{repeats}  {found}", flush=True)
    print()
    print(
        harness.table(
            ["", "all workers equal", "one slowed 3 ×"], [*map(row_of(rounds), STEPS_TO_ENOUGH), ratios(rounds)]
        )
    )


def row_of(rounds: Sequence[Mapping[tuple[str, int], float]]) -> Any:
    def row(kind: str) -> list[str]:
        figures = [str(harness.Figure.of([one[kind, slowdown] for one in rounds])) for slowdown in SLOWDOWNS]
        return [f"{kind.replace('_', ' ')}, s to 95 %", *figures]

    return row


def ratios(rounds: Sequence[Mapping[tuple[str, int], float]]) -> list[str]:
    figures = [
        harness.Figure.of([one["data_parallel", slow] / one["parameter_servers", slow] for one in rounds])
        for slow in SLOWDOWNS
    ]
    return ["parameter servers are faster by", *(f"{figure} ×" for figure in figures)]


def seconds_to_enough(told: Mapping[str, Any]) -> float:
    for seconds, reached in zip(told["seconds"], told["accuracy"], strict=False):
        if reached >= ENOUGH:
            return float(seconds)
    raise RuntimeError(f"no weights reached {ENOUGH:.0%}: {told['accuracy']}")


if __name__ == "__main__":
    main()
