"""Training jobs in plain Keras, run as a script: alone (Paceline not imported) or as a worker of a world of N.

python parity_jobs.py DIRECTORY [job …] writes DIRECTORY/<job>.rank<r>.npz: final weights and history. The test compares.
"""

import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

L = keras.layers
O = keras.optimizers  # noqa: E741
BATCH = 16
JOBS: dict[str, Callable[[], dict[str, Any]]] = {}


def job(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    JOBS[function.__name__] = function
    return function


def cross_entropy(**options: Any) -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def dense_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8,)),
            L.Dense(16, "relu", kernel_regularizer=keras.regularizers.L2(1e-2)),
            L.Dense(4),
        ]
    )


def convolutional_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((12, 12, 1)),
            L.Conv2D(4, 3, activation="relu"),
            L.MaxPooling2D(),
            L.Flatten(),
            L.Dense(10),
        ]
    )


def table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, 8)), generator.integers(0, 4, rows)


def digits(rows: int) -> tuple[np.ndarray, np.ndarray]:
    data = Path(__file__).parents[2] / "examples" / "data" / "mnist_10k.npz"
    with np.load(data) as archive:
        images = archive["x_train"][:rows, 2:26:2, 2:26:2, None]
        return images / 255.0, archive["y_train"][:rows].astype("int64")


def batches(arrays: tuple[np.ndarray, ...]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH)


def train(model: keras.Model, optimizer: keras.optimizers.Optimizer, x: Any, y: Any = None, **fit: Any) -> dict[str, Any]:
    compile_options = fit.pop("compile_options", {})
    model.compile(optimizer=optimizer, **{"loss": cross_entropy(), "metrics": ["accuracy"], **compile_options})
    fit = {"epochs": 3, "verbose": 0, **fit}
    history = model.fit(x, y, **fit).history
    return {"model": model, "history": history}


@job
def sgd_on_real_digits() -> dict[str, Any]:
    x, y = digits(200)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(200, seed=3).batch(BATCH)
    return train(convolutional_model(), O.SGD(0.1), data, validation_data=batches(digits(57)))


@job
def adam_with_clipnorm() -> dict[str, Any]:
    return train(dense_model(), O.Adam(0.01, clipnorm=0.1), batches(table(37)))


@job
def adam_with_global_clipnorm_and_two_metrics() -> dict[str, Any]:
    metrics = ["accuracy", keras.metrics.SparseCategoricalCrossentropy(from_logits=True)]
    return train(
        dense_model(), O.Adam(0.01, global_clipnorm=0.1), batches(table(37)), compile_options={"metrics": metrics}
    )


@job
def a_rank_without_rows() -> dict[str, Any]:
    return train(convolutional_model(), O.SGD(0.1, momentum=0.9), batches(digits(BATCH + 1)))


@job
def every_batch_smaller_than_the_world() -> dict[str, Any]:
    return train(dense_model(), O.Adam(0.01), tf.data.Dataset.from_tensor_slices(table(7)).batch(1))


@job
def repeated_data_with_steps() -> dict[str, Any]:
    data = tf.data.Dataset.from_tensor_slices(table(50)).shuffle(50).repeat().batch(BATCH)
    return train(dense_model(), O.SGD(0.1), data, steps_per_epoch=5)


@job
def repeated_validation_with_steps() -> dict[str, Any]:
    endless = batches(table(21, seed=5)).repeat()
    return train(dense_model(), O.SGD(0.1), batches(table(33)), validation_data=endless, validation_steps=3)


@job
def arrays_shuffled_by_keras() -> dict[str, Any]:
    x, y = table(53)
    return train(dense_model(), O.Adam(0.01), x, y, batch_size=BATCH, validation_split=0.2)


@job
def sample_weights() -> dict[str, Any]:
    x, y = table(37)
    weights = np.random.default_rng(1).random(37)
    options = {"weighted_metrics": ["accuracy"], "metrics": None}
    return train(dense_model(), O.SGD(0.1), batches((x, y, weights)), compile_options=options)


@job
def mean_with_sample_weight() -> dict[str, Any]:
    x, y = table(37)
    weights = np.random.default_rng(1).random(37)
    options = {"loss": cross_entropy(reduction="mean_with_sample_weight"), "metrics": None}
    return train(dense_model(), O.SGD(0.1), batches((x, y, weights)), compile_options=options)


@job
def summed_loss() -> dict[str, Any]:
    options = {"loss": cross_entropy(reduction="sum")}
    return train(dense_model(), O.SGD(0.01), batches(table(37)), compile_options=options)


@job
def masked_sequences() -> dict[str, Any]:
    generator = np.random.default_rng(2)
    x = generator.integers(1, 20, (37, 6))
    x[np.arange(37) % 3 == 0, 3:] = 0
    y = generator.integers(0, 4, (37, 6))
    model = keras.Sequential(
        [keras.Input((6,), dtype="int32"), L.Embedding(20, 8, mask_zero=True), L.LSTM(8, return_sequences=True), L.Dense(4)]
    )
    return train(model, O.Adam(0.01), batches((x, y)))


@job
def gradient_accumulation() -> dict[str, Any]:
    return train(dense_model(), O.Adam(0.01, gradient_accumulation_steps=3, clipnorm=0.1), batches(table(80)))


@job
def three_steps_per_execution() -> dict[str, Any]:
    return train(
        dense_model(), O.SGD(0.1), batches(table(7 * BATCH + 5)), compile_options={"steps_per_execution": 3}
    )


@job
def moving_average_of_weights() -> dict[str, Any]:
    return train(
        dense_model(), O.AdamW(0.01, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=2), batches(table(50))
    )


@job
def evaluate_and_predict() -> dict[str, Any]:
    x, y = table(41)
    result = train(dense_model(), O.SGD(0.1), x, y, batch_size=BATCH, shuffle=False)
    model = result["model"]
    evaluated = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
    result["history"] |= {f"evaluated_{name}": [value] for name, value in evaluated.items()}
    result["history"]["predicted"] = model.predict(x, batch_size=BATCH, verbose=0)
    return result


def main() -> None:
    directory = Path(sys.argv[1])
    dtype = os.environ.get("PARITY_DTYPE", "float64")
    keras.config.set_floatx(dtype)
    rank = int(os.environ.get("PACELINE_RANK", "0"))
    for name in sys.argv[2:] or JOBS:
        keras.utils.set_random_seed(zlib.crc32(name.encode()) % 1000)
        result = JOBS[name]()
        np.savez(
            directory / f"{name}.rank{rank}.npz",
            weights=np.concatenate([np.ravel(value) for value in result["model"].get_weights()]),
            **{f"history_{key}": np.asarray(value) for key, value in result["history"].items()},
        )
        print(f"{name} done", flush=True)
    assert ("paceline" in sys.modules) == ("PACELINE_RANK" in os.environ)


if __name__ == "__main__":
    main()
