"""Workers that divide the graph of each step (`--divide-steps`) compute what one worker computes."""

from pathlib import Path

import numpy as np
import pytest
from divided_jobs import CASES
from parity_runs import JOBS, RELATIVE_FLOAT64, Divided, Runs, distance

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("divided")]

SCRIPT = Path(__file__).with_name("divided_jobs.py")
IN_EVERY_CHECK = {
    "arrays_with_validation_arrays_and_class_weights",
    "dropout_in_batches_of_a_fixed_size",
    "dropout_with_several_steps_per_execution",
    "evaluate_and_predict",
    "gradient_accumulation",
    "masked_lstm",
    "multi_head_attention_with_dropout",
    "own_steps_of_papers",
    "python_generator",
    "ragged_sequences",
    "single_batches",
    "two_optimizers_in_one_step",
}
_PARITY = [
    pytest.param(job.name, marks=() if job.name in IN_EVERY_CHECK else pytest.mark.proof)
    for job in JOBS
    if job.dtype == "float64"
]


@pytest.mark.parametrize("job", _PARITY)
def test_parity_jobs(runs: Runs, job: str) -> None:
    one, *ranks = runs.result(job), *(runs.result(job, Divided(2), rank) for rank in range(2))
    for several in ranks:
        np.testing.assert_allclose(several.weights, one.weights, rtol=RELATIVE_FLOAT64, atol=1e-12)
        assert distance(several.weights, one.weights) <= RELATIVE_FLOAT64
        assert several.history.keys() == one.history.keys()
        for name, values in one.history.items():
            np.testing.assert_allclose(several.history[name], values, rtol=RELATIVE_FLOAT64, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.proof)])
@pytest.mark.parametrize("case", CASES)
def test_what_needs_the_whole_batch(worlds: Worlds, case: str, size: int) -> None:
    """Losses over pairs of rows, statistics of the batch, random numbers of the step, branches on data."""
    [one] = worlds.plain.run(SCRIPT, case).told
    for several in worlds.of(size, divided=True).run(SCRIPT, case).told:
        np.testing.assert_allclose(several, one, rtol=RELATIVE_FLOAT64, atol=1e-12)
