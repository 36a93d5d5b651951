"""Pipelines compute what one process computes: the parity jobs in stages against plain Keras, job by job."""

from typing import Any

import numpy as np
import pytest

from parity import in_stages
from parity_runs import (
    JOBS,
    RELATIVE_BFLOAT16,
    RELATIVE_FLOAT16,
    RELATIVE_FLOAT32_STEP,
    RELATIVE_FLOAT64,
    REPLICAS,
    TWO_STAGES,
    Pipeline,
    Runs,
    distance,
)

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("parity")]

_FLOAT32_DRIFT = 1e-5
"""Of several steps, which add up in another order than one process."""

DTYPES = {job.name: job.dtype for job in JOBS}
_ALL = [name for name in DTYPES if name not in in_stages.REFUSED]


def _trained() -> list[Any]:
    everywhere = [(name, pipeline) for pipeline in (TWO_STAGES, REPLICAS) for name in _ALL]
    others = [(name, Pipeline(2, 2, 4, one)) for one in ("gpipe", "zb_h1") for name in in_stages.OF_TWO_STAGES]
    others += [(name, Pipeline(2, 2, 4, one)) for one in ("interleaved", "zb_v") for name in in_stages.OF_MANY_LAYERS]
    in_check = {(name, TWO_STAGES) for name in in_stages.IN_EVERY_CHECK}
    return [
        pytest.param(*case, marks=() if case in in_check else pytest.mark.proof, id=f"{case[0]}-{case[1]}")
        for case in [*everywhere, *others]
    ]


@pytest.mark.parametrize(("job", "pipeline"), _trained())
def test_a_pipeline_computes_what_one_process_computes(runs: Runs, job: str, pipeline: Pipeline) -> None:
    one, found = runs.result(job), runs.whole(job, pipeline)
    assert found.history.keys() == one.history.keys()
    if DTYPES[job] == "float64":
        np.testing.assert_allclose(found.weights, one.weights, rtol=RELATIVE_FLOAT64, atol=1e-12)
        for name, values in one.history.items():
            np.testing.assert_allclose(found.history[name], values, rtol=RELATIVE_FLOAT64, atol=1e-12, err_msg=name)
    elif job.startswith("half_precision"):
        assert distance(found.weights, one.weights) <= RELATIVE_FLOAT16
        assert found.history == one.history, "another scale, or other steps"
        assert one.history["history_scale"] < 1024.0, "no step overflowed: the job does not test what it says"
    elif job.startswith("bfloat16"):
        assert distance(found.weights, one.weights) <= RELATIVE_BFLOAT16
    else:
        assert distance(found.weights, one.weights) <= (RELATIVE_FLOAT32_STEP if "one_step" in job else _FLOAT32_DRIFT)


_REFUSED_IN_EVERY_CHECK = ("own_train_step_in_an_unbuilt_model",)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(name, marks=() if name in _REFUSED_IN_EVERY_CHECK else pytest.mark.proof)
        for name in in_stages.REFUSED
    ],
)
def test_what_no_pipeline_trains_is_refused_on_every_rank(runs: Runs, job: str) -> None:
    for said in runs.refusals(job, TWO_STAGES):
        assert in_stages.REFUSED[job] in said, said
        assert said.endswith("[pipeline]"), said
