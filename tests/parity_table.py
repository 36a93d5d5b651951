"""The parity matrix as a table: training jobs on 1 to 4 workers and in pipelines, and how far weights and history are
apart.

    make parity        writes docs/parity.md (long: every job on every world size)

With a folder as argument, that of a run of `test_parity.py`, its results are taken, and nothing is run.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

import numpy as np

from parity import in_stages
from parity_runs import JOBS, REPLICAS, TWO_STAGES, WORLDS, DeclaredJob, Pipeline, Result, Runs, distance
from worlds import Worlds

COLUMNS = (*WORLDS, TWO_STAGES, REPLICAS)
TARGET = Path(__file__).parents[1] / "docs" / "parity.md"

HEAD = """# Parity matrix

N workers against one, which is plain Keras in a process that has not imported Paceline. Each number is the largest of
two relative differences after the last epoch: of all weights together (length of the difference over length), and of
any number in the history (losses, metrics, validation, what `evaluate` and `predict` return). On every rank weights and
history are the same bits. What the jobs are: `tests/parity/`. What is not exact, and why: `exactness.md`.

Written by `make parity`, which runs every job on every world size. The same jobs are tests
(`tests/fit/test_parity.py`), with limits of 1e-9 for float64, 1e-6 for one step in float32, 1e-5 for float16 and 1e-3
for bfloat16; in every check one job of each kind runs on two workers, and the others in `make proof`. Float32 over
epochs drifts as one process does that adds the same batch in parts, which the tests measure beside it.

The last two columns are `paceline.PipelineStrategy`: two stages, four micro-batches, `1f1b`, on two workers; two stages
with two replicas each, two micro-batches, `gpipe`, on four. A dash is a job that pipelines refuse
(`tests/parity/in_stages.py` says why). Their tests are in `tests/pipeline/test_pipelined_parity.py`, most of
them in `make proof`.

| job | dtype | 2 workers | 3 workers | 4 workers | 2 stages | 2 stages × 2 |
| --- | --- | --- | --- | --- | --- | --- |
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


def cell(runs: Runs, job: DeclaredJob, world: int | Pipeline) -> str:
    """The deviation of a job on so many workers, or in a pipeline."""
    if isinstance(world, Pipeline) and job.name in in_stages.REFUSED:
        return "–"
    print(f"{job.name} on {world}", flush=True)
    if isinstance(world, Pipeline):
        found = deviation(runs.result(job.name), [runs.whole(job.name, world)])
    else:
        found = deviation(runs.result(job.name), [runs.result(job.name, world, rank) for rank in range(world)])
    return "0" if found == 0 else f"{found:.0e}"


def main() -> None:
    """Runs everything, or takes what is there, and writes the table."""
    with tempfile.TemporaryDirectory() as temporary, contextlib.closing(Worlds()) as worlds:
        runs = Runs(Path(sys.argv[1]) if sys.argv[1:] else Path(temporary), worlds)
        rows = [
            f"| {job.name.replace('_', ' ')} | {job.dtype} | {' | '.join(cell(runs, job, one) for one in COLUMNS)} |"
            for job in sorted(JOBS)
        ]
    TARGET.write_text(HEAD + "\n".join(rows) + "\n")
    print(f"written: {TARGET}")


if __name__ == "__main__":
    main()
