"""Does input get faster with more workers? See README.md beside this file."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKER = str(HERE / "worker.py")
WAYS = {
    "1 worker": (1, "divided"),
    "2 workers, whole batches on each": (2, "whole"),
    "2 workers": (2, "divided"),
}
KINDS = ("heavy", "light", "arrays")


def rows_per_second(kind: str, way: str, figure: str) -> float:
    workers, division = WAYS[way]
    command = [*harness.PACELINE, "run", "--workers", str(workers), WORKER, kind, division]
    return float(harness.run_job(command)[figure])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    parser.add_argument("--processor", action="store_true", help="rows for each second of the chief's processor time")
    options = parser.parse_args()
    figure = "rows_per_processor_second" if options.processor else "rows_per_second"
    speeds: dict[tuple[str, str], list[float]] = {(kind, way): [] for kind in KINDS for way in WAYS}
    for round_ in range(1 if options.quick else options.repeats):
        for kind, way in speeds:
            speeds[kind, way].append(rows_per_second(kind, way, figure))
            print(f"round {round_ + 1}  {kind}  {way}: {speeds[kind, way][-1]:.0f} rows/s", flush=True)
    rows = []
    for kind in KINDS:
        one, whole, two = (speeds[kind, way] for way in WAYS)
        rows.append(
            [
                kind,
                str(harness.Figure.of(one)),
                str(harness.Figure.of(whole)),
                str(harness.Figure.of(two)),
                str(harness.Figure.of([a / b for a, b in zip(two, one, strict=True)])),
                str(harness.Figure.of([a / b for a, b in zip(two, whole, strict=True)])),
            ]
        )
    print(harness.table(["map", *(f"{way}, rows/s" for way in WAYS), "2 workers / 1", "divided / whole"], rows))


if __name__ == "__main__":
    main()
