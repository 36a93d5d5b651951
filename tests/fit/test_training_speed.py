"""What a profile measures of `fit` is Keras's own loop, of whole epochs where they are short."""

import itertools
from typing import Any

import keras
import pytest
import tensorflow as tf

from paceline.fit.training_speed import speed_in_fit
from paceline.seams.install import install_with_keras
from paceline.strategy.pipeline import PipelineStrategy


def _model(**options: Any) -> Any:
    model = keras.Sequential([keras.layers.Dense(1)])  # not built
    model.compile("sgd", "mse", **options)
    return model


@pytest.mark.parametrize(
    ("steps_per_execution", "batches", "executions"),
    [
        (1, 4, 9),  # two whole epochs: from the end of the first execution to the end of the ninth
        (2, 4, 7),  # three, of two executions each
        (1, 100_000, 6),  # as many as take five seconds
    ],
)
def test_an_execution_a_second(steps_per_execution: int, batches: int, executions: int) -> None:
    model, seconds = _model(steps_per_execution=steps_per_execution), itertools.count()
    speed = speed_in_fit(model, keras.Model.fit, 5, clock=lambda: float(next(seconds)))
    assert speed is not None
    assert speed(tf.data.Dataset.from_tensors((tf.ones([3, 1]), tf.ones([3, 1]))).repeat(batches)) == 1
    assert next(seconds) == executions
    assert model.built
    assert model.optimizer.iterations.numpy() >= executions * steps_per_execution


def test_a_pipeline_is_not_trained_by_one_process() -> None:
    model = _model()
    install_with_keras()
    model._distribute_strategy = object.__new__(PipelineStrategy)
    assert speed_in_fit(model, keras.Model.fit, 5) is None
