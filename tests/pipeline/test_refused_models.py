"""What no pipeline can train is refused by `compile` or at the beginning of `fit`, before any step."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline
from paceline.errors import ConfigurationError
from paceline.pipeline.model_layers import layers_of
from paceline.plan.profile import Layer, Profile
from paceline.plan.schedules import schedule_named
from paceline.plan.split import cuts_of_balance

X, Y = np.ones((12, 4), np.float32), np.ones((12, 1), np.float32)


class _OwnStep(keras.Model):  # type: ignore[misc]  # Keras is untyped
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class _Subclassed(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.only = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.only(x)


def _dense(num_layers: int = 3) -> Any:
    return keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(1, name=f"d{at}") for at in range(num_layers))])


def _with_own_step() -> Any:
    x = keras.Input((4,))
    return _OwnStep(x, keras.layers.Dense(1)(keras.layers.Dense(4)(x)))


def _shared() -> Any:
    x = keras.Input((4,))
    layer = keras.layers.BatchNormalization(name="twice")
    return keras.Model(x, keras.layers.Dense(1, name="last")(layer(keras.layers.Dense(4, name="between")(layer(x)))))


def _shared_to_the_end() -> Any:
    x = keras.Input((4,))
    layer = keras.layers.BatchNormalization(name="twice")
    return keras.Model(x, layer(keras.layers.Dense(4, name="between")(layer(x))))


def _stateful() -> Any:
    x = keras.Input((4,), batch_size=12)
    hidden = keras.layers.Reshape((4, 1))(x)
    return keras.Model(x, keras.layers.Dense(1)(keras.layers.GRU(2, stateful=True, name="states")(hidden)))


def _normalized_spectrum() -> Any:
    normalized = keras.layers.SpectralNormalization(keras.layers.Dense(4), name="normalized")
    return keras.Sequential([keras.Input((4,)), normalized, keras.layers.Dense(1)])


class Keeps(keras.layers.Layer):  # type: ignore[misc]
    """Assigns a sum over rows, or a number that no row changes."""

    def __init__(self, of_rows: bool) -> None:
        super().__init__(name="keeps")
        self.of_rows = of_rows

    def build(self, shape: Any) -> None:
        self.kept = self.add_weight(shape=(), trainable=False, name="kept", initializer="zeros")

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.kept.assign(0.5 * self.kept.value + (keras.ops.sum(x) if self.of_rows else 1.0))
        return x


def _keeping(of_rows: bool = True) -> Any:
    return keras.Sequential([keras.Input((4,)), Keeps(of_rows), keras.layers.Dropout(0.1), keras.layers.Dense(1)])


_ALL_ROWS = r"adds up what layers compute for all rows of a batch \("


def _compares_rows(y: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.square(keras.ops.matmul(y_pred, keras.ops.transpose(y_pred)) - y))


def _root(y: Any, y_pred: Any) -> Any:
    return keras.ops.sqrt(keras.ops.mean(keras.ops.square(y_pred - y)))


def _by_python(y: Any, y_pred: Any) -> Any:
    del y
    return tf.reshape(tf.numpy_function(lambda rows: np.float32(rows.max()), [y_pred], tf.float32), [])


class _Largest(keras.metrics.Metric):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="largest")
        self.largest = self.add_weight(shape=(), initializer="zeros", name="largest")

    def update_state(self, y: Any, y_pred: Any, sample_weight: Any = None) -> None:
        del y, sample_weight
        self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(y_pred)))

    def result(self) -> Any:
        return self.largest.value


def _drawing_in_a_branch() -> Any:
    def drawn(x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x[:0]) > 1.0, lambda: x, lambda: x + tf.random.normal([4], seed=1))

    return keras.Sequential([keras.Input((4,)), keras.layers.Lambda(drawn), keras.layers.Dense(1)])


def _complex() -> Any:
    x = keras.Input((4,))
    waves = keras.layers.Lambda(lambda x: tf.cast(x, tf.complex64), name="waves", dtype="complex64")
    hidden = waves(keras.layers.Dense(4)(x))
    hidden = keras.layers.Lambda(tf.math.real, dtype="float32")(hidden)
    return keras.Model(x, keras.layers.Dense(1)(hidden))


def _fit(
    build: Callable[[], Any],
    batch_size: int = 6,
    loss: Any = "mse",
    compiling: dict[str, Any] | None = None,
    micro_batches: int = 3,
    **options: Any,
) -> Any:
    # Two chunks on one stage: what passes from one to another is the same as between two stages.
    strategy = paceline.PipelineStrategy(stages=1, micro_batches=micro_batches, schedule="interleaved", **options)
    with strategy.scope():
        model = build()
        options_of_compile = dict(compiling or {})
        if metrics := options_of_compile.get("metrics"):  # a metric makes variables
            options_of_compile["metrics"] = [one() if isinstance(one, type) else one for one in metrics]
        model.compile("sgd", loss, **options_of_compile)
    model.fit(X, Y, batch_size=batch_size, verbose=0)
    return model


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"build": _dense, "batch_size": 2}, "A batch of 2 rows cannot be cut into 3 micro-batches"),
        ({"build": lambda: _dense(1)}, "2 chunks .* are more than the model's 1 layers: ask for fewer stages"),
        ({"build": _dense, "balance": [1, 1]}, r"received balance=\[1, 1\]; expected 2 numbers from 1 with the sum 3"),
        ({"build": _dense, "split_after": ["none"]}, r"split_after=\['none'\]; expected 1 names .* of d0, d1"),
        ({"build": _dense, "compiling": {"jit_compile": True}}, "Leave jit_compile out"),
        ({"build": _dense, "compiling": {"run_eagerly": True}}, "Leave run_eagerly out"),
        ({"build": _with_own_step}, "The class _OwnStep has its own train_step"),
        ({"build": _Subclassed}, "has a `call` of its own"),
        ({"build": _shared, "balance": [1, 3]}, "the layers twice, twice .call 2. belong together"),
        ({"build": _shared_to_the_end}, "has no 1 places .* belong together: twice, twice .call 2.. They share"),
        ({"build": _stateful}, "stateful=True in states"),
        (
            {"build": _normalized_spectrum, "micro_batches": 1},
            "The layer 'normalized' assigns its weight '.*normalized/dense.*/kernel', which is trained",
        ),
        ({"build": _dense, "loss": _compares_rows}, rf"{_ALL_ROWS}test_refused_models.py:\d+ in _compares_rows"),
        ({"build": _dense, "loss": _root}, rf"{_ALL_ROWS}test_refused_models.py:\d+ in _root"),
        ({"build": _dense, "compiling": {"metrics": [_Largest]}}, rf"{_ALL_ROWS}test_refused_models.py:\d+"),
        ({"build": _dense, "compiling": {"metrics": [_by_python]}}, r"calls Python .* needs the rows of the whole"),
        ({"build": _drawing_in_a_branch}, r"draws random numbers with tf.random in a loop or branch"),
        ({"build": _complex, "balance": [2, 2]}, "cut behind 'waves', which makes a tensor of dtype complex64"),
        ({"build": _dense, "memory_limit": 10}, r'no split .* fits .* the smallest limit .* memory_limit="1MB"'),
    ],
)
def test_models_that_no_pipeline_trains(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"(?s){said}.*\[pipeline\]"):
        _fit(**arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stages": 0, "micro_batches": 2}, "stages=0 and micro_batches=2; both are at least 1"),
        ({"stages": 1, "micro_batches": 2, "vertical_sync": True}, "vertical_sync=True and schedule='1f1b'"),
        ({"stages": 1, "micro_batches": 2, "balance": [2], "split_after": []}, "give one of the two"),
        ({"stages": "2", "micro_batches": 2}, "Received '2' for stages; expected an integer"),
        ({"stages": 1, "micro_batches": 2.0}, "Received 2.0 for micro_batches; expected an integer"),
        ({"stages": 1, "micro_batches": 2, "balance": [1.5]}, "Received 1.5 for a number of layers in balance"),
        ({"stages": 1, "micro_batches": 2, "balance": "even"}, "balance='even'; expected 'auto'"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{said}.*\[pipeline\]"):
        paceline.PipelineStrategy(**options)


def test_batches_that_leave_fewer_rows_are_trained() -> None:
    """The last batch of an epoch may have fewer rows than micro-batches."""
    _fit(_dense, batch_size=5)  # the last one has two rows


def test_states_that_micro_batches_compute_as_one_process_are_kept() -> None:
    """What follows from no row is the same in each micro-batch; of sums over rows each has an addend."""
    assert _fit(lambda: _keeping(of_rows=False)).get_layer("keeps").kept.numpy() == 1.5
    assert _fit(_keeping).get_layer("keeps").kept.numpy() == 36.0
    assert _fit(_keeping, micro_batches=1).get_layer("keeps").kept.numpy() == 36.0


@pytest.mark.parametrize(
    ("loss", "metric"), [("_compares_rows", None), ("_root", None), ("mse", "_Largest"), ("mse", "_by_python")]
)
def test_one_micro_batch_has_all_rows(loss: str, metric: str | None) -> None:
    """What several micro-batches are refused."""
    made = {"_Largest": _Largest, "_by_python": lambda: _by_python}
    metrics = [made[metric]()] if metric else None
    function = {"_compares_rows": _compares_rows, "_root": _root}.get(loss, loss)
    _fit(_dense, micro_batches=1, loss=function, compiling={"metrics": metrics})


def test_asynchronous_stages_do_not_share_weights() -> None:
    """They would compute with different versions of one weight; what a synchronous schedule cuts is refused by name."""
    x = keras.Input((4,))
    layer = keras.layers.Dense(4, name="twice")
    model = keras.Model(x, layer(keras.layers.Dense(4, name="between")(layer(x))))
    layers = layers_of(model)
    profile = Profile(tuple(Layer(one.name, 0, 0, 0, one.reads) for one in layers.layers), layers.ties, layers.sharing)
    assert cuts_of_balance(profile.under(schedule_named("1f1b")), [1, 2], 2) == (1, 3)
    with pytest.raises(ConfigurationError, match=r"twice, twice .call 2. belong together.*asynchronous.*\[pipeline\]"):
        cuts_of_balance(profile.under(schedule_named("pipedream")), [1, 2], 2)
