"""What ranks have in common comes from the chief's part of a snapshot; what each has by itself must not."""

import keras
import numpy as np

from paceline.fit.snapshots import kept_state


def test_accumulated_gradients_are_each_rank_s_own() -> None:
    """They are summed over ranks with the update only: a rank that got the chief's lost the gradients of its rows."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, gradient_accumulation_steps=3))
    model.compile(optimizer, "mse")
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    own = {id(variable) for variable in kept_state.own_variables(model)}
    shared = {id(variable) for variable in kept_state.shared_variables(model)}
    assert not own & shared
    inner = model.optimizer.inner_optimizer
    accumulators = [variable for variable in inner.variables if "gradient_accumulator" in variable.path]
    assert accumulators
    assert {id(variable) for variable in accumulators} <= own
    assert {id(inner._iterations), id(model.weights[0])} <= shared
