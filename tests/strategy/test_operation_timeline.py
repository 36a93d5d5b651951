"""``--timeline``: which events begin and end the profile, and what is read of a profile of TensorFlow."""

import time
from pathlib import Path

import pytest
import tensorflow as tf

from paceline.events.worker_events import EpochBegan, Event, FitBegan, FitEnded, StepDone, TrainingResumed
from paceline.strategy.operation_timeline import ProfiledSteps, operations_in

STEPS = range(40, 45)


def done(*steps: int) -> list[Event]:
    return [StepDone(0, step, 0) for step in steps]


def begun(step: int) -> Event:
    return FitBegan(0, 1, step, is_repeated=False)


def resumed(step: int) -> Event:
    return TrainingResumed(0, step, 0, 2, "")


@pytest.mark.parametrize(
    ("events", "told"),
    [
        pytest.param(done(38, 39, 43, 44), {1: "begin", 3: "end"}, id="step by step"),
        pytest.param(done(36, 41, 46), {1: "begin", 2: "end"}, id="five at once"),
        pytest.param([begun(39), EpochBegan(0, 0, 39), *done(44)], {0: "begin", 2: "end"}, id="a later fit"),
        pytest.param([*done(39, 41), FitEnded(0, 41), begun(41)], {0: "begin", 2: "end"}, id="a fit that ends"),
        pytest.param([FitEnded(0, 39), begun(39)], {1: "begin"}, id="the fit before"),
        pytest.param([begun(0), resumed(42), *done(44)], {1: "begin", 2: "end"}, id="resumed among them"),
        pytest.param([begun(0), resumed(44), *done(45), begun(39)], {}, id="resumed behind them"),
    ],
)
def test_which_events_begin_and_end_it(events: list[Event], told: dict[int, str]) -> None:
    steps = ProfiledSteps(STEPS)
    heard = {number: steps.hear(event) for number, event in enumerate(events)}
    assert {number: what for number, what in heard.items() if what} == told


def test_operations_have_the_time_of_day(tmp_path: Path) -> None:
    matrix = tf.random.uniform([256, 256])
    began = time.time_ns()
    tf.profiler.experimental.start(str(tmp_path))
    for _ in range(5):
        matrix = tf.matmul(matrix, matrix)
    tf.profiler.experimental.stop()
    ended = time.time_ns()
    [profile] = tmp_path.rglob("*.xplane.pb")
    products = [one for one in operations_in(profile.read_bytes()) if one.name.endswith("MatMul")]
    assert len(products) >= 5
    assert all(began <= one.began < one.ended <= ended for one in products)
