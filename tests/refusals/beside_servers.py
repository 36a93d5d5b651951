"""What is refused where parameter servers train: the cases of a warm world whose process has servers, by code."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parents[1] / "strategy"))
from refusal import Refusal, told

X, Y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)


def _servers() -> Any:
    """Imported late: the import uses TensorFlow, which the process that only reads `ROWS` must not."""
    import servers_in_process

    return servers_in_process


def run_case(code: str) -> list[str]:
    return told(ROWS, code)


def _model(*middle: Any, optimizer: Any = "sgd", **options: Any) -> Any:
    with _servers().strategy(num_servers=2).scope():
        model = keras.Sequential([keras.Input((4,)), *middle, keras.layers.Dense(1)])
        model.compile(optimizer, "mse", **options)
    return model


def _of_python() -> Any:
    def doubled(x: Any) -> Any:
        return tf.ensure_shape(tf.py_function(lambda one: one * 2, [x], tf.float32), x.shape)

    return keras.layers.Lambda(doubled, output_shape=(4,), name="calling")


def _outside() -> None:
    _servers().strategy(num_servers=2)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)


def _lazily_averaged() -> None:
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    with _servers().strategy(num_servers=2, variable_partitioner=partitioner, lazy_rows=True).scope():
        model = keras.Sequential(
            [keras.Input((1,), dtype="int32"), keras.layers.Embedding(6, 2), keras.layers.Flatten()]
        )
        model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    model.fit(np.ones((8, 1), np.int32), np.ones((8, 2), np.float32), verbose=0)


def _too_many_shards() -> None:
    partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(4)
    with _servers().strategy(num_servers=2, variable_partitioner=partitioner).scope():
        keras.layers.Embedding(3, 2).build()


ROWS = [
    Refusal(
        "before-strategy",
        lambda: _model().evaluate(_servers().EARLY_DATA, verbose=0),
        ValueError,
        "x is a dataset that was made before the ParameterServerStrategy",
        "Make the strategy first",
    ),
    Refusal(
        "dataset-function",
        lambda: _model().fit(lambda: 3, steps_per_epoch=1, verbose=0),
        ValueError,
        "returned int",
        "expected a tf.data.Dataset",
    ),
    Refusal(
        "eager-step",
        lambda: _model(run_eagerly=True).fit(X, Y, verbose=0),
        ValueError,
        "run_eagerly=True",
        "Leave run_eagerly out",
    ),
    Refusal(
        "endless-data",
        lambda: _model().fit(tf.data.Dataset.from_tensors((X, Y)).repeat(), verbose=0),
        ValueError,
        "x is a dataset without end",
        "set steps_per_epoch=",
    ),
    Refusal("lazy-rows", _lazily_averaged, ValueError, "use_ema averages all rows", "lazy_rows"),
    Refusal("outside-scope", _outside, ValueError, "the model was made outside", "`with strategy.scope():`"),
    Refusal(
        "python-in-step",
        lambda: _model(_of_python()).fit(X, Y, verbose=0),
        ValueError,
        "the layer 'calling' calls Python",
        "Use TensorFlow's operations",
    ),
    Refusal(
        "shards", _too_many_shards, ValueError, "wants 4 shards of embedding", "which has 3 rows: take at most 3 shards"
    ),
]
