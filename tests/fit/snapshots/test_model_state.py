"""What a model holds, also what Keras does not list; and how the sums of several ranks are restored."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from paceline.errors import ConfigurationError
from paceline.fit.snapshots import model_state
from paceline.fit.snapshots.model_state import look_again, model_parts, unlisted_state_of
from saved_parts import layouts_of, restore, snapshot_of

optimizers = keras.optimizers


class Unhashable(keras.layers.Layer):
    """Holds a bit of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"b": [tf.Variable(1.0)], "a": (tf.Variable(2.0),)}
        self.again = self.counts["b"][0]
        self.generator = tf.random.Generator.from_seed(1)
        self.listed = self.add_weight(shape=(2,))

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


def model_with(width: int = 2, **attributes: Any) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(width)])
    model.compile("sgd", "mse")
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def test_all_optimizers_the_models_own_first_and_each_once() -> None:
    inner = optimizers.Adam()
    scaled, other = optimizers.LossScaleOptimizer(inner), optimizers.SGD()
    model = model_with(others=[{"x": scaled}, other], again=other)
    assert unlisted_state_of(model).optimizers == [model.optimizer, scaled, other, inner]


def test_variables_that_no_layer_lists_each_once() -> None:
    layer = Unhashable()
    found = unlisted_state_of(layer).variables
    assert [id(one) for one in found] == [
        id(one) for one in (layer.counts["b"][0], layer.counts["a"][0], layer.generator.state)
    ]


def test_what_comes_later_is_found_when_looked_at_again() -> None:
    model = model_with()
    assert unlisted_state_of(model).variables == []
    model.later = tf.Variable(1.0)
    assert unlisted_state_of(model).variables == []
    assert [one is model.later for one in look_again(model).variables] == [True]
    assert unlisted_state_of(model) is unlisted_state_of(model)


def test_optimizers_are_built_for_what_they_trained() -> None:
    first, second = (model_with(other=optimizers.Adam()) for _ in range(2))
    assert [one["trains"] for one in model_state.describe_optimizers(first)] == [None, None]
    first.other.build([first.layers[0].bias])
    model_state.build_optimizers(second, model_state.describe_optimizers(first))
    assert not second.optimizer.built
    assert [variable.path for variable in second.other._trainable_variables] == [second.layers[0].bias.path]


def test_what_an_optimizer_holds_once_it_is_built_is_no_part_of_an_older_snapshot() -> None:
    model = model_with(other=optimizers.LossScaleOptimizer(optimizers.Adam()))
    before = model_state.shared_variables(model)
    described = model_state.describe_optimizers(model)
    model.optimizer.build(model.trainable_variables)
    model.other.build(model.trainable_variables)
    assert [id(one) for one in model_state.shared_variables(model, described)] == [id(one) for one in before]
    assert len(model_state.shared_variables(model)) > len(before)


def test_a_snapshot_of_another_model_changes_nothing() -> None:
    theirs, ours = model_with(width=5), model_with()
    theirs.optimizer.build(theirs.trainable_variables)
    with pytest.raises(ConfigurationError, match="the model or the optimizer is another one"):
        restore(snapshot_of([model_parts(theirs, is_chief=True)]), model_parts(ours, is_chief=True))
    assert not ours.optimizer.built


def test_metrics_of_another_model_change_nothing() -> None:
    """Its weights were assigned before the metrics were looked at."""
    theirs, ours = model_with(), model_with()
    theirs.compile("sgd", "mse", metrics=["mae"])
    theirs.fit(np.ones((2, 3)), np.ones((2, 2)), verbose=0)
    before = ours.get_weights()[0]
    with pytest.raises(ConfigurationError, match="metric variable"):
        restore(snapshot_of([model_parts(theirs, is_chief=True)]), model_parts(ours, is_chief=True))
    np.testing.assert_array_equal(ours.get_weights()[0], before)


def test_captures_look_for_metrics_once_and_find_variables_that_these_get_later() -> None:
    """Each capture walked all layers twice, a quarter of its time."""

    class Looked(keras.Sequential):
        looks = 0

        @property
        def metrics(self) -> Any:
            Looked.looks += 1
            return super().metrics

    model = Looked([keras.Input((3,)), keras.layers.Dense(2)])
    model.score = keras.metrics.F1Score()  # makes its variables with its first rows
    parts = model_parts(model, is_chief=True)

    def saved() -> int:
        return len(snapshot_of([parts]).state(0)["model.sums"])

    look_again(model)
    before = saved()
    looks = Looked.looks
    model.score.update_state(np.eye(2), np.eye(2))
    assert saved() == before + len(model.score.variables) > before
    assert Looked.looks == looks


def test_accumulated_gradients_are_each_rank_s_own() -> None:
    """They are summed over ranks with the update only: a rank that got the chief's lost the gradients of its rows."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, gradient_accumulation_steps=3))
    model.compile(optimizer, "mse")
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    own = {id(variable) for variable in model_state.own_variables(model)}
    shared = {id(variable) for variable in model_state.shared_variables(model)}
    assert not own & shared
    inner = model.optimizer.inner_optimizer
    accumulators = [variable for variable in inner.variables if "gradient_accumulator" in variable.path]
    assert accumulators
    assert {id(variable) for variable in accumulators} <= own
    assert {id(inner._iterations), id(model.weights[0])} <= shared


@pytest.mark.parametrize("is_scaled", [True, False])
def test_another_number_of_ranks_goes_on_with_what_was_accumulated(is_scaled: bool) -> None:
    """Each rank has the sums of all, and so has each rank that goes on."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    model.compile(keras.optimizers.LossScaleOptimizer(accumulating) if is_scaled else accumulating, "mse")
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    gradients = [one for one in model_state.own_variables(model) if "gradient_accumulator" in one.path]
    of_each = [variable.numpy() for variable in gradients]
    assert any(values.any() for values in of_each)
    two_ranks = snapshot_of([model_parts(model, is_chief=True)] * 2)
    for layout in layouts_of([range(3)]):
        restore(two_ranks, model_parts(model, is_chief=layout.rank == 0), layout)
        for variable, values in zip(gradients, of_each, strict=True):
            np.testing.assert_allclose(variable.numpy(), values, rtol=1e-6)
