"""How long does the first batch of an epoch wait behind a large shuffle buffer? See README.md beside this file."""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKER = str(HERE / "epochs_worker.py")
WAYS = ("late", "early")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    options = parser.parse_args()
    found: dict[tuple[int, str], list[dict[str, float]]] = {(size, way): [] for size in (1, 2) for way in WAYS}
    for round_ in range(1 if options.quick else options.repeats):
        for (size, way), figures in found.items():
            figures.append(harness.run_job([*harness.PACELINE, "run", "--workers", str(size), WORKER, way]))
            print(f"round {round_ + 1}  {size} workers  {way}: {figures[-1]}", flush=True)
    rows = []
    for (size, way), figures in found.items():
        late = found[size, "late"]
        ratios = [one["second"] / one["first"] for one in figures]
        whole = [one["fit"] / other["fit"] for one, other in zip(figures, late, strict=True)]
        rows.append([str(size), way, str(harness.Figure.of(ratios)), str(harness.Figure.of(whole))])
    print(harness.table(["workers", "buffer of epoch 2 filled", "first batch, epoch 2 / 1", "fit / late"], rows))


if __name__ == "__main__":
    main()
