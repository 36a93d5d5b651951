"""N workers compute what one worker computes: plain Keras without Paceline against 2, 3 and 4 workers, job by job."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity_runs import (
    JOBS,
    RELATIVE_BFLOAT16,
    RELATIVE_FLOAT16,
    RELATIVE_FLOAT32_STEP,
    RELATIVE_FLOAT64,
    WORLDS,
    DeclaredJob,
    Runs,
    Shared,
    distance,
)

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("parity")]

SHARES = Shared("3,1")
CHANGING = Shared("auto")
CHANGING_IN_EVERY_CHECK = ("a_rank_without_rows", "dropout")
SHARED_BY_THREE = ("a_rank_without_rows", "augmentation", "batch_normalization_synchronized", "dropout")

ALLOWED_DRIFT = 2.0
"""Times the drift of one process that adds the same batch in as many parts."""


def _cases(wanted: Callable[[DeclaredJob], bool]) -> list[Any]:
    return [
        pytest.param(job.name, size, marks=() if size in job.worlds else pytest.mark.proof)
        for size in WORLDS
        for job in JOBS
        if wanted(job)
    ]


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: True))
def test_every_rank_has_the_same_weights_and_history_bit_for_bit(runs: Runs, job: str, size: int) -> None:
    chief = runs.result(job, size)
    for rank in range(1, size):
        other = runs.result(job, size, rank)
        assert other.weights.tobytes() == chief.weights.tobytes(), f"weights of rank {rank}"
        assert other.history.keys() == chief.history.keys()
        for name, values in chief.history.items():
            assert other.history[name].tobytes() == values.tobytes(), f"{name} of rank {rank}"


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: job.dtype == "float64"))
def test_workers_compute_what_one_computes(runs: Runs, job: str, size: int) -> None:
    one, several = runs.result(job), runs.result(job, size)
    np.testing.assert_allclose(several.weights, one.weights, rtol=RELATIVE_FLOAT64, atol=1e-12)
    assert distance(several.weights, one.weights) <= RELATIVE_FLOAT64
    assert several.history.keys() == one.history.keys()
    for name, values in one.history.items():
        np.testing.assert_allclose(several.history[name], values, rtol=RELATIVE_FLOAT64, atol=1e-12, err_msg=name)


def _by_shares() -> list[Any]:
    jobs = [job.name for job in JOBS if job.dtype == "float64"]
    return [
        *(pytest.param(job, SHARES, marks=pytest.mark.proof) for job in jobs),
        *(pytest.param(job, Shared("1,0,2"), marks=pytest.mark.proof) for job in SHARED_BY_THREE),
        *(
            pytest.param(job, CHANGING, marks=() if job in CHANGING_IN_EVERY_CHECK else pytest.mark.proof)
            for job in jobs
        ),
    ]


@pytest.mark.parametrize(("job", "shared"), _by_shares(), ids=str)
def test_rows_by_shares_change_no_number(runs: Runs, job: str, shared: Shared) -> None:
    one, several = runs.result(job), [runs.result(job, shared, rank) for rank in range(shared.workers)]
    assert distance(several[0].weights, one.weights) <= RELATIVE_FLOAT64
    for result in several:
        assert result.weights.tobytes() == several[0].weights.tobytes()
    assert several[0].history.keys() == one.history.keys()
    for name, values in one.history.items():
        np.testing.assert_allclose(several[0].history[name], values, rtol=RELATIVE_FLOAT64, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: "one_step" in job.name and job.dtype == "float32"))
def test_one_step_in_float32_agrees_to_rounding(runs: Runs, job: str, size: int) -> None:
    assert distance(runs.result(job, size).weights, runs.result(job).weights) <= RELATIVE_FLOAT32_STEP


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: job.name.startswith("float32_epochs")))
def test_epochs_in_float32_drift_no_more_than_a_sum_in_parts(runs: Runs, job: str, size: int) -> None:
    one = runs.result(job).weights
    drift = distance(runs.result(job, size).weights, one)
    drift_in_parts = distance(runs.result(f"{job}_in_{size}_parts").weights, one)
    assert drift <= ALLOWED_DRIFT * drift_in_parts, f"{drift:.1e} against {drift_in_parts:.1e} in parts"


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: job.name.startswith("half_precision")))
def test_half_precision_scales_and_skips_alike(runs: Runs, job: str, size: int) -> None:
    one, several = runs.result(job), runs.result(job, size)
    assert distance(several.weights, one.weights) <= RELATIVE_FLOAT16
    assert several.history["history_steps"] == one.history["history_steps"]
    assert several.history["history_scale"] == one.history["history_scale"]
    assert one.history["history_scale"] < 1024.0, "no step overflowed: the job does not test what it says"


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: job.name.startswith("bfloat16")))
def test_bfloat16_agrees_to_its_few_digits(runs: Runs, job: str, size: int) -> None:
    assert distance(runs.result(job, size).weights, runs.result(job).weights) <= RELATIVE_BFLOAT16
