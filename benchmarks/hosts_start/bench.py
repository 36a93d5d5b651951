"""What do other hosts add to starting a job? Two workers on two hosts over ssh, against two workers of one host."""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import harness  # noqa: E402
import host_lab  # noqa: E402

NOOP = str(HERE.parent / "launch" / "noop.py")
ALONE, LOCAL, REMOTE = (
    "ssh alpha true",
    "paceline run --workers 2 noop.py",
    "paceline run --hosts alpha:1,beta:1 noop.py",
)


def seconds(command: Sequence[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=harness.DEADLINE_SECONDS)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    options = parser.parse_args()
    with host_lab.two_hosts() as lab:
        variants = {
            ALONE: lab.command(host_lab.LAPTOP, ["ssh", "alpha", "true"], lab.folder),
            LOCAL: host_lab.job(lab, ["--workers", "2", NOOP]),
            REMOTE: host_lab.job(lab, [*host_lab.ON_BOTH, NOOP]),
        }
        rounds: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(1 if options.quick else 2 * options.repeats):
            for name, command in variants.items():
                rounds[name].append(seconds(command))
    figures = {name: harness.Figure.of(values) for name, values in rounds.items()}
    more = harness.Figure.of([far - near for far, near in zip(rounds[REMOTE], rounds[LOCAL], strict=True)])
    print(harness.table(["command", "seconds: median (spread)"], [[name, str(f)] for name, f in figures.items()]))
    print(f"\nover two local workers: {more} s (target ≤ 1)")


if __name__ == "__main__":
    main()
