"""What does starting a job cost? Seconds from ``paceline run --workers 2 noop.py`` to exit, over one worker alone."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402

NOOP = str(HERE / "noop.py")
VARIANTS = {
    "python noop.py": [sys.executable, NOOP],
    "paceline run --workers 2 noop.py": [*harness.PACELINE, "run", "--workers", "2", NOOP],
}
VARIABLES = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Of an installed package Python has kept the compiled form; compiling at each start is not the question here."""


def seconds(command: Sequence[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, env=VARIABLES, check=True, capture_output=True, timeout=harness.DEADLINE_SECONDS)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    for command in VARIANTS.values():
        seconds(command)  # not counted: the first start compiles
    rounds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(2 * options.repeats):
        for name, command in VARIANTS.items():
            rounds[name].append(seconds(command))
    figures = {name: harness.Figure.of(values) for name, values in rounds.items()}
    print(harness.table(["command", "seconds: median (spread)"], [[name, str(f)] for name, f in figures.items()]))
    alone, two = (figures[name].median for name in VARIANTS)
    print(f"\nover the worker alone: {two - alone:.2f} s (target ≤ 0.5)")


if __name__ == "__main__":
    main()
