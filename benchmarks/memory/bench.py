"""Does memory grow from epoch to epoch? See README.md beside this file."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

EPOCHS, COUNTED_EPOCHS = 200, 150
EVERY_STEPS = 10  # of keras_worker.py's epochs: a snapshot in each


def paceline(workers: int) -> list[str]:
    launcher = [*harness.PACELINE, "run", "--workers", str(workers)]
    return [*launcher, "--snapshot-dir", "{directory}/snapshots", "--snapshot-every", str(EVERY_STEPS)]


VARIANTS = {
    "paceline run --workers 1": paceline(1),
    "paceline run --workers 2": paceline(2),
    "python (no snapshots)": [sys.executable],
}


def megabytes(launcher: Sequence[str], epochs: int) -> list[list[float]]:
    """Of each rank, after each epoch."""
    with tempfile.TemporaryDirectory() as directory:
        command = [*(part.format(directory=directory) for part in launcher)]
        command += [str(HERE / "keras_worker.py"), str(epochs), directory]
        variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=4 * harness.DEADLINE_SECONDS, check=False
        )
        if done.returncode != 0:
            output = f"{done.stdout}\n{done.stderr}"[-4000:]
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{output}")
        files = sorted(Path(directory).glob("[0-9]*.json"))
        return [[bytes_ / 1e6 for bytes_ in json.loads(file.read_text())] for file in files]


def slope(values: Sequence[float]) -> float:
    """By least squares, per epoch, after the warm-up."""
    counted = values[-min(COUNTED_EPOCHS, 3 * len(values) // 4) :]
    return float(np.polyfit(np.arange(len(counted)), counted, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round of few epochs, to see that it works")
    options = parser.parse_args()
    repeats, epochs = (1, 40) if options.quick else (options.repeats, EPOCHS)
    rounds: dict[str, list[list[list[float]]]] = {name: [] for name in VARIANTS}
    for round_ in range(repeats):
        for name, launcher in VARIANTS.items():
            rounds[name].append(megabytes(launcher, epochs))
            print(f"round {round_ + 1}/{repeats}  {name}", flush=True)
    rows = []
    for name, jobs in rounds.items():
        ranks = [rank for job in jobs for rank in job]
        slopes = harness.Figure.of([slope(rank) for rank in ranks])
        first, last = (harness.Figure.of([rank[at] for rank in ranks]).median for at in (epochs // 4, -1))
        target = "< 0.1" if name.startswith("paceline") else ""
        rows.append([name, f"{first:.0f}", f"{last:.0f}", str(slopes), target])
    headings = [
        "variant",
        f"MB after epoch {epochs // 4}",
        f"after epoch {epochs}",
        "MB per epoch: median (spread)",
        "target",
    ]
    print()
    print(harness.table(headings, rows))


if __name__ == "__main__":
    main()
