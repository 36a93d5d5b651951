"""What ranks have in common comes from the chief's part of a snapshot; what each has by itself must not."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from paceline.fit.snapshots import kept_state
from paceline.fit.snapshots.restored import Restored, put_back
from paceline.resilience import variables
from paceline.resilience.generators import capture_generators
from paceline.resilience.kept_memory import Memory
from paceline.resilience.object_state import encode


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


def copies(found: Any, name: str, factor: int = 1) -> tuple[Any, dict[str, Any]]:
    memory, tensors = Memory(), {}
    memory.begin()
    described = variables.copied(found, name, tensors, memory)
    memory.end()
    return described, {at: (tensor * factor).astype(tensor.dtype) for at, tensor in tensors.items()}


@pytest.mark.parametrize("is_scaled", [True, False])
def test_another_number_of_ranks_shares_out_what_was_summed_by_each(is_scaled: bool) -> None:
    """Gradients that reach an inner optimizer are summed over ranks before: each rank goes on with all of them."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    model.compile(keras.optimizers.LossScaleOptimizer(accumulating) if is_scaled else accumulating, "mse")
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    sums, weights = kept_state.own_variables(model), kept_state.shared_variables(model)
    own, first = copies(sums, "metrics")
    shared, tensors = copies(weights, "variables")
    gradients = [variable for variable in sums if "gradient_accumulator" in variable.path]
    of_chief = [variable.numpy() for variable in gradients]
    assert any(values.any() for values in of_chief)
    state = {
        "metrics": own,
        "callbacks": [],
        "global_seed": None,
        "generators": encode(capture_generators(), tensors, "generators"),
        "has_stopped": False,
    }
    info: Any = None
    restored = Restored(
        info, {"variables": shared}, state, {**tensors, **first}, [first, copies(sums, "metrics", 2)[1]]
    )
    for rank, factor in ((0, 1 if is_scaled else 3), (1, 1 if is_scaled else 0)):
        world: Any = SimpleNamespace(rank=rank, size=3)
        put_back(model, [], restored, world)
        for variable, values in zip(gradients, of_chief, strict=True):
            np.testing.assert_allclose(variable.numpy(), factor * values, rtol=1e-6)
