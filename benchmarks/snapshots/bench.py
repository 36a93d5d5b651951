"""What do snapshots cost while training? See README.md beside this file."""

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKERS = (1, 2)


def measured(workers: int, snapshots: int, parent: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        worker = [str(HERE / "keras_worker.py"), str(snapshots), directory]
        return harness.run_job([*harness.PACELINE, "run", "--workers", str(workers), "--no-drop-in", *worker])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    parser.add_argument("--directory", help="on the disk to write to; default: the system's temporary directory")
    options = parser.parse_args()
    repeats, snapshots = (1, 4) if options.quick else (options.repeats, 60)
    results: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
    for round_ in range(repeats):
        for workers in WORKERS:
            results[workers].append(measured(workers, snapshots, options.directory))
            print(f"round {round_ + 1}/{repeats}  --workers {workers}", flush=True)
    for workers, rounds in results.items():
        report(workers, rounds)


def report(workers: int, rounds: Sequence[dict[str, Any]]) -> None:
    """Steps after a snapshot against those that come next."""
    kept = [1e3 * seconds for one in rounds for seconds in one["with_s"]]
    alone = [1e3 * seconds for one in rounds for seconds in one["without_s"]]
    costs = [ours - plain for ours, plain in zip(kept, alone, strict=True)]
    hundred = statistics.median(alone) * 100 / rounds[0]["steps"]
    # The middle 95 % of medians of as many costs, drawn again and again out of these.
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(costs, k=len(costs))) for _ in range(1000))
    cost, low, high = statistics.median(costs), medians[25], medians[974]
    waits = harness.Figure.of([wait for one in rounds for wait in one["waits_ms"]])
    copy, new = (harness.Figure.of([one[key] for one in rounds]) for key in ("copy_ms", "copy_into_new_ms"))
    megabytes = rounds[0]["snapshot_bytes"] / 1e6
    print(f"\n{'1 worker' if workers == 1 else f'{workers} workers'}, {megabytes:.1f} MB a snapshot\n")
    print(
        harness.table(
            ["what", "measured: median (spread)", "target"],
            [
                ["100 steps without a snapshot, ms", f"{hundred:.0f}", ""],
                ["what a snapshot costs, ms", f"{cost:.1f} ({low:.1f}–{high:.1f})", ""],
                ["100 steps longer by", f"{100 * cost / hundred:.2f} %", "≤ 3 %"],
                ["the same, 95 % sure", f"{100 * low / hundred:.2f}–{100 * high / hundred:.2f} %", ""],
                ["the step that snapshots waits, ms", str(waits), ""],
                ["np.copyto into memory that is there, ms", str(copy), ""],
                ["np.copyto into new memory, ms", str(new), ""],
                ["waits / copy into memory that is there", f"{waits.median / copy.median:.2f}", "≤ 2"],
                ["waits / copy into new memory", f"{waits.median / new.median:.2f}", ""],
            ],
        )
    )


if __name__ == "__main__":
    main()
