"""A `fit` whose last snapshot is gone is passed over all the same: to refuse it would end every rerun there."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from paceline.fit.snapshots.passing import Passing
from paceline.fit.snapshots.restored import Restored


def model_of(width: int) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(width)])
    model.compile("sgd", "mse")
    return model


def test_the_newest_snapshot_may_be_that_of_another_model(caplog: pytest.LogCaptureFixture) -> None:
    info: Any = SimpleNamespace(name="step-000000000900", step=900)
    shared = {"variables": [["kernel", [3, 8], "variables/0"]], "history": {}, "epochs": []}
    restored = Restored(info, shared, {"metrics": []}, {"variables/0": np.zeros((3, 8))}, [])
    model = model_of(2)
    before = model.get_weights()
    world: Any = SimpleNamespace(rank=0, size=1)
    keeper: Any = None
    Passing(keeper, world, fit_call=4)._take_what_fits(model, [], keras.callbacks.History(), restored)
    for weight, was in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, was)
    [record] = caplog.records
    assert "fit number 5 had ended" in record.getMessage()
    assert "stays UNTRAINED" in record.getMessage()
    assert "has the shape (3, 8) in the snapshot and (3, 2) in the script" in record.getMessage()
