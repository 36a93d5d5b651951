"""BatchNormalization by the rows of each rank: plain Keras on each rank's rows, put together, says what is right."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tests.spmd import rank_threads
from tests.spmd.rank_threads import Step, by_one_worker, by_ranks

from paceline.fit import batch_statistics

pytestmark = pytest.mark.usefixtures("in_double_precision")

_RNG = np.random.default_rng(0)
ROWS = 7
FEATURES = _RNG.standard_normal((ROWS, 6))
IMAGES = _RNG.standard_normal((ROWS, 4, 5, 3))
SERIES = _RNG.standard_normal((ROWS, 5, 4))
LABELS = _RNG.integers(0, 3, ROWS)
IS_TAKEN = _RNG.random((ROWS, 5)) < 0.6
IS_TAKEN[4:] = False  # of the last rank, nothing
DIVISIONS = (pytest.param((4, 3), marks=pytest.mark.proof), (2, 5, 0), (0, 7))

KERAS_CALL = layers.BatchNormalization.call

CASES: dict[str, tuple[np.ndarray, dict[str, Any], np.ndarray | None]] = {
    "features": (FEATURES, {}, None),
    "images": (IMAGES, {}, None),
    "channels first": (IMAGES, {"axis": 1}, None),
    "neither scale nor centre": (IMAGES, {"scale": False, "center": False}, None),
    "masked": (SERIES, {}, IS_TAKEN),
    "folded": (SERIES, {}, None),
}
"""Inputs, arguments of the layer, and a mask."""


@pytest.fixture
def by_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `--batch-statistics local`."""
    monkeypatch.setattr(batch_statistics, "_is_wanted", lambda: not tf.executing_eagerly())
    monkeypatch.setattr(layers.BatchNormalization, "call", batch_statistics.of_own_rows(KERAS_CALL))


def _folded(name: str, x: Any) -> Any:
    """The inputs of the layer: of some, the places of the rows are rows, too."""
    return tf.reshape(x, [-1, x.shape[-1]]) if name == "folded" else x


def _layer(options: dict[str, Any], shape: Sequence[int]) -> Any:
    keras.utils.set_random_seed(3)
    layer = layers.BatchNormalization(
        momentum=0.7, gamma_initializer="random_normal", beta_initializer="random_normal", **options
    )
    layer.build(shape)
    return layer


def _loss(outputs: Any) -> Any:
    return tf.reduce_mean(tf.tanh(outputs) ** 2 + 0.3 * outputs)


def _step(name: str) -> Callable[[], Step]:
    """Outputs and gradients of a layer, with what is assigned."""
    inputs, options, _ = CASES[name]

    def make() -> Step:
        layer = _layer(options, _folded(name, inputs).shape)

        def step(x: Any, *masks: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = layer(_folded(name, x), training=True, mask=masks[0] if masks else None)
                loss = _loss(outputs)
            return [outputs, *tape.gradient(loss, [x, *layer.trainable_variables])]

        return Step(step, lambda: layer.non_trainable_variables)

    return make


def _batch(name: str) -> list[np.ndarray]:
    inputs, _, mask = CASES[name]
    return [inputs] if mask is None else [inputs, mask]


def _expected(name: str, counts: Sequence[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Plain Keras's layer for each rank's rows: outputs and gradients of the common loss, and averaged statistics."""
    inputs, options, mask = CASES[name]
    x = tf.constant(inputs)
    copies = [_layer(options, _folded(name, x).shape) for _ in counts]
    weights = []
    with tf.GradientTape() as tape:
        tape.watch(x)
        parts = []
        for rank, (count, layer) in enumerate(zip(counts, copies, strict=True)):
            own = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
            weights.append(float(count if mask is None else mask[own].sum()))
            if count:
                parts.append(
                    KERAS_CALL(layer, _folded(name, x[own]), training=True, mask=None if mask is None else mask[own])
                )
        outputs = tf.concat(parts, 0)
        loss = _loss(outputs)
    of_input, *of_weights = tape.gradient(loss, [x, *(one for layer in copies for one in layer.trainable_variables)])
    num_weights = len(copies[0].trainable_variables)
    summed = [
        sum((one.numpy() for one in of_weights[index::num_weights] if one is not None), 0.0)
        for index in range(num_weights)
    ]
    statistics = [
        np.average([layer.non_trainable_variables[index].numpy() for layer in copies], axis=0, weights=weights)
        for index in range(2)
    ]
    return [outputs.numpy(), of_input.numpy(), *summed], statistics


def _close(arrays: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> None:
    for one, other in zip(arrays, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("by_own_rows")
@pytest.mark.parametrize("counts", DIVISIONS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("for_one_length", [False, pytest.param(True, marks=pytest.mark.proof)])
def test_each_rank_normalizes_by_its_rows(name: str, counts: tuple[int, ...], for_one_length: bool) -> None:
    """Outputs, the gradients of inputs and weights, and the moving statistics; a rank may have no row."""
    outputs, statistics = _expected(name, counts)
    outcomes, _ = by_ranks(_step(name), _batch(name), counts, num_steps=1, for_one_length=for_one_length)
    for outcome in outcomes:
        _close(outcome.outputs, outputs)
        _close(outcome.variables, statistics)


@pytest.mark.usefixtures("by_own_rows")
def test_sizes_that_the_trace_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def traced(step: Step, batch: Any, *, for_one_length: bool) -> Any:
        spec = tf.TensorSpec([None, None, None, 3], tf.float64)
        return tf.function(step.function, autograph=False).get_concrete_function(spec)

    monkeypatch.setattr(rank_threads, "traced", traced)
    outputs, statistics = _expected("images", (4, 3))
    for outcome in by_ranks(_step("images"), _batch("images"), (4, 3), num_steps=1)[0]:
        _close(outcome.outputs, outputs)
        _close(outcome.variables, statistics)


@pytest.mark.parametrize("name", CASES)
def test_an_undivided_step_has_the_numbers_of_keras(name: str, request: pytest.FixtureRequest) -> None:
    plain = by_one_worker(_step(name), _batch(name))
    request.getfixturevalue("by_own_rows")
    ours = by_one_worker(_step(name), _batch(name))
    _close(ours.outputs, plain.outputs)
    _close(ours.variables, plain.variables)


def _network(**options: Any) -> Callable[[], Step]:
    def make() -> Step:
        keras.utils.set_random_seed(3)
        blocks = [(layers.Conv2D(4, 3, padding="same"), layers.BatchNormalization(**options)) for _ in range(3)]
        parts = [layer for block in blocks for layer in block]
        model = keras.Sequential([keras.Input((4, 5, 3)), *parts, layers.GlobalAveragePooling2D(), layers.Dense(3)])
        model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.optimizer.build(model.trainable_variables)
        return Step(lambda *batch: model.train_step(batch), lambda: model.variables)

    return make


@pytest.mark.parametrize("for_one_length", [False, pytest.param(True, marks=pytest.mark.proof)])
@pytest.mark.usefixtures("by_own_rows")
def test_a_network_has_one_message_a_step_and_equal_weights(for_one_length: bool) -> None:
    outcomes, sent = by_ranks(_network(), [IMAGES, LABELS], (4, 3), for_one_length=for_one_length)
    assert sent == ["sum"]
    assert all(np.isfinite(one).all() for one in outcomes[0].variables)
    for one, other in zip(outcomes[0].variables, outcomes[1].variables, strict=True):
        np.testing.assert_array_equal(one, other)
    _, exact = by_ranks(_network(synchronized=True), [IMAGES, LABELS], (4, 3), for_one_length=for_one_length)
    assert len(exact) > 5, "layers that are synchronized stay exact"


@pytest.mark.usefixtures("by_own_rows")
def test_a_network_whose_rows_all_are_one_ranks_is_exact() -> None:
    """With this the first batch is verified."""
    expected = by_one_worker(_network(), [IMAGES, LABELS])
    for outcome in by_ranks(_network(), [IMAGES, LABELS], (0, 7))[0]:
        _close(outcome.variables, expected.variables)
