"""What do snapshots cost while training? See README.md beside this file."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

WORKERS = (1, 2)


def measured(workers: int, blocks: int, epochs: int, steps: int, parent: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        worker = [str(HERE / "keras_worker.py"), str(blocks), str(epochs), str(steps), directory]
        return harness.run_job([*harness.PACELINE, "run", "--workers", str(workers), "--no-drop-in", *worker])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    parser.add_argument("--directory", help="on the disk to write to; default: the system's temporary directory")
    options = parser.parse_args()
    repeats, blocks, epochs, steps = (1, 1, 1, 100) if options.quick else (options.repeats, 1, 2, 400)
    results: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
    for round_ in range(repeats):
        for workers in WORKERS:
            results[workers].append(measured(workers, blocks, epochs, steps, options.directory))
            print(f"round {round_ + 1}/{repeats}  --workers {workers}", flush=True)
    for workers, rounds in results.items():
        report(workers, rounds)


def report(workers: int, rounds: Sequence[dict[str, Any]]) -> None:
    """Epochs with snapshots against those without that ran just before them."""
    alone = [seconds for one in rounds for seconds in one["epochs_s"]["without"]]
    kept = [seconds for one in rounds for seconds in one["epochs_s"]["with"]]
    longer = harness.Figure.of([100 * (ours / plain - 1) for ours, plain in zip(kept, alone, strict=True)])
    mean = 100 * (sum(kept) / sum(alone) - 1)
    waits = harness.Figure.of([wait for one in rounds for wait in one["waits_ms"]])
    copy, new = (harness.Figure.of([one[key] for one in rounds]) for key in ("copy_ms", "copy_into_new_ms"))
    megabytes = rounds[0]["snapshot_bytes"] / 1e6
    print(f"\n{'1 worker' if workers == 1 else f'{workers} workers'}, {megabytes:.1f} MB a snapshot\n")
    print(
        harness.table(
            ["what", "measured: median (spread)", "target"],
            [
                ["epoch without snapshots, s", str(harness.Figure.of(alone)), ""],
                ["epoch with snapshots, s", str(harness.Figure.of(kept)), ""],
                ["mean epoch longer, %", f"{mean:.2f}", "≤ 3"],
                ["pairs of epochs: longer, %", str(longer), ""],
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
