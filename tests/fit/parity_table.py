"""The parity matrix as a table: every job on 1, 2, 3 and 4 workers, and how far the weights and the history are apart.

make parity        writes docs/parity.md (long: every job on every world size)
"""

import tempfile
from pathlib import Path

import numpy as np
from test_parity import JOBS, WORLDS, Result, Runs, distance

TARGET = Path(__file__).parents[2] / "docs" / "parity.md"

HEAD = """# Parity matrix

N workers against one, which is plain Keras in a process that has not imported Paceline. Each number is the largest of
two relative differences after the last epoch: of all weights together (length of the difference over length), and of
any number in the history (losses, metrics, validation, what `evaluate` and `predict` return). Written by `make parity`;
the same jobs are tests (`tests/fit/test_parity.py`), with limits of 1e-9 for float64, 1e-6 for one step in float32 and
1e-5 in half precision. Float32 over epochs drifts as one process does that adds the same batch in parts, which the
tests measure beside it. On every rank weights and history are the same bits.

What the jobs are: `tests/fit/parity/`. What is not exact, and why: `exactness.md`.

| job | dtype | 2 workers | 3 workers | 4 workers |
| --- | --- | --- | --- | --- |
"""


def deviation(one: Result, several: list[Result]) -> float:
    """The largest relative difference of weights and history; infinite if ranks differ from each other."""
    for other in several[1:]:
        if other.weights.tobytes() != several[0].weights.tobytes():
            return float("inf")
    found = distance(several[0].weights, one.weights)
    for name, values in one.history.items():
        difference = np.abs(several[0].history[name] - values) / np.maximum(np.abs(values), 1e-12)
        found = max(found, float(np.max(difference, initial=0.0)))
    return found


def main() -> None:
    """Runs everything and writes the table."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder))
        lines = []
        for job in sorted(JOBS):
            cells = []
            for size in WORLDS:
                print(f"{job.name} on {size} workers", flush=True)
                several = [runs.result(job.name, size, rank) for rank in range(size)]
                cells.append(f"{deviation(runs.result(job.name), several):.0e}")
            lines.append(f"| {job.name.replace('_', ' ')} | {job.dtype} | {' | '.join(cells)} |")
    TARGET.write_text(HEAD + "\n".join(lines) + "\n")
    print(f"written: {TARGET}")


if __name__ == "__main__":
    main()
