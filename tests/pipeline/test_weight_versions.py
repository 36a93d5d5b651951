"""A version that is held stays what it was, whatever updates the variables in place."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from paceline.pipeline.gradient_sums import GradientSums
from paceline.pipeline.weight_versions import WeightVersions

_OPTIMIZERS = sorted(
    name
    for name, one in vars(keras.optimizers).items()
    if isinstance(one, type)
    and issubclass(one, keras.optimizers.Optimizer)
    and name not in ("Optimizer", "LossScaleOptimizer", "MultiOptimizer")  # no update of their own
)


@pytest.mark.parametrize("name", _OPTIMIZERS)
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("options", [{}, {"use_ema": True, "ema_overwrite_frequency": 1, "weight_decay": 0.1}])
def test_no_optimizer_writes_into_a_version(name: str, is_sparse: bool, options: dict[str, Any]) -> None:
    weight = keras.Variable(np.arange(1.0, 13.0, dtype=np.float32).reshape(4, 3), name="weight")
    optimizer = getattr(keras.optimizers, name)(**options)
    optimizer.build([weight])
    versions = WeightVersions([weight], {0: 9, 1: 9})

    @tf.function
    def update(gradient: Any) -> None:
        sparse = tf.IndexedSlices(gradient[:2], tf.constant([1, 3]), tf.constant([4, 3]))
        optimizer.apply([sparse if is_sparse else gradient], [weight])

    for number in range(2):
        [held] = versions.values(number, [weight])
        before = held.numpy()
        versions.make_next(5)
        update(tf.ones([4, 3]))
        assert list(versions.held) == list(range(number + 1))
        np.testing.assert_array_equal(held, before)
        assert not np.array_equal(weight.numpy(), before)
    versions.make_next(9)
    assert not versions.held


def test_gradients_are_not_added_to_what_has_been_read() -> None:
    weight, sums = keras.Variable(np.zeros(3, np.float32)), GradientSums()
    sums.begin([weight])
    [handle] = sums.handles([weight])
    tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.ones(3))
    [read] = sums.read([weight])
    tf.raw_ops.AssignAddVariableOp(resource=handle, value=tf.ones(3))
    np.testing.assert_array_equal(read, np.ones(3))
    np.testing.assert_array_equal(sums.read([weight])[0], 2 * np.ones(3))
