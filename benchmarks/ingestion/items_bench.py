"""Do items that hold the interpreter get faster with more workers? See README.md beside this file."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKER = str(HERE / "items_worker.py")
WAYS = {
    "1 worker": (1, "shared", "2"),
    "2 workers, all items on each": (2, "whole", "2"),
    "2 workers, all items on one": (2, "shared", "1"),
    "2 workers, every second item on each": (2, "shared", "2"),
}


def run(workers: int, *arguments: str) -> dict[str, float]:
    return harness.run_job([*harness.PACELINE, "run", "--workers", str(workers), WORKER, *arguments])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    parser.add_argument("--processor", action="store_true", help="rows for each second of the chief's processor time")
    options = parser.parse_args()
    figure = "rows_per_processor_second" if options.processor else "rows_per_second"
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    rings = []
    for round_ in range(1 if options.quick else options.repeats):
        for way, (workers, division, threads) in WAYS.items():
            speeds[way].append(run(workers, "fit", division, threads)[figure])
            print(f"round {round_ + 1}  {way}: {speeds[way][-1]:.0f} rows/s", flush=True)
        rings.append(run(2, "ring"))
        print(f"round {round_ + 1}  12 MB through the ring: {rings[-1]}", flush=True)
    one = speeds["1 worker"]
    rows = [
        [
            way,
            str(harness.Figure.of(figures)),
            str(harness.Figure.of([a / b for a, b in zip(figures, one, strict=True)])),
        ]
        for way, figures in speeds.items()
    ]
    print(harness.table(["way", "rows/s", "over 1 worker"], rows))
    medians, least = ([ring[name] for ring in rings] for name in ("milliseconds", "least"))
    print(f"12 MB through the ring, ms: {harness.Figure.of(medians)}, at least {harness.Figure.of(least)}")


if __name__ == "__main__":
    main()
