"""A model cut in chunks on one stage trains as plain Keras does: every kind of layer, whatever the micro-batches."""

import contextlib

import keras
import pytest
from pipelined_models import JOBS, check_equal, trained

import paceline


@pytest.fixture(autouse=True)
def _float64() -> None:
    before, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")  # Keras keeps the policy of the first layer that was ever made
    yield
    keras.config.set_floatx(before)
    keras.config.set_dtype_policy(policy)


_RECOMPUTED = {"attention": True}  # Dropout draws the same numbers again


@pytest.mark.parametrize("name", JOBS)
def test_chunks_of_a_model_train_as_the_model(name: str) -> None:
    _, expected = trained(JOBS[name], contextlib.nullcontext())
    recompute = _RECOMPUTED.get(name, False)
    strategy = paceline.PipelineStrategy(stages=1, micro_batches=3, schedule="interleaved", recompute=recompute)
    _, found = trained(JOBS[name], strategy.scope())
    check_equal(found, expected, JOBS[name].limit)


@pytest.mark.parametrize("schedule", ["pipedream", "pipedream_2bw"])
def test_one_stage_has_no_late_weights(schedule: str) -> None:
    job = JOBS["masked sequences"]  # looks rows up; metrics of rows that are not masked
    _, expected = trained(job, contextlib.nullcontext())
    strategy = paceline.PipelineStrategy(stages=1, micro_batches=3, schedule=schedule)
    _, found = trained(job, strategy.scope(), steps_per_execution=4)
    check_equal(found, expected)
