"""What do the step clock and its records cost a step? See README.md beside this file."""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

STEPS = {"cnn": 60, "dense": 400}
"""Of a fit."""
NAMES = {"on": "the clock over none", "observe": "the clock and --observe over none"}
TARGETS = {"on": 1.01, "observe": 1.02}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=12, help="fits of each variant, in turns, in one job")
    options = parser.parse_args()
    rows = []
    for model, steps in STEPS.items():
        for workers in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                command = [*harness.PACELINE, "run", "--workers", str(workers), "--observe", f"{folder}/seen"]
                worker = [str(HERE / "worker.py"), model, str(steps), str(options.repeats)]
                found = harness.run_job([*command, *worker])
            for variant, target in TARGETS.items():
                ratios = [one / off for one, off in zip(found[variant], found["off"], strict=True)]
                off, one = (str(harness.Figure.of(found[name])) for name in ("off", variant))
                rows.append(
                    [model, str(workers), NAMES[variant], off, one, str(harness.Figure.of(ratios)), f"≤ {target}"]
                )
            print(f"{model}, {workers} workers", flush=True)
    print()
    heads = ["model", "workers", "what", "none: ms a step", "with: ms a step", "ratio: median (spread)", "target"]
    print(harness.table(heads, rows))


if __name__ == "__main__":
    main()
