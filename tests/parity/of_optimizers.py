"""What optimizers do with gradients: clip, accumulate, average, decay, follow a schedule, scale."""

from typing import Any

import keras
import numpy as np
from keras import optimizers

from parity.ingredients import BATCH, batches, dense_model, layers, table, train
from parity.registry import job


@job(worlds=())
def adam_with_clipnorm() -> dict[str, Any]:
    return train(dense_model(), optimizers.Adam(0.01, clipnorm=0.1), batches(table(37)))


@job(worlds=())
def adam_with_global_clipnorm_and_two_metrics() -> dict[str, Any]:
    metrics = ["accuracy", keras.metrics.SparseCategoricalCrossentropy(from_logits=True)]
    return train(
        dense_model(),
        optimizers.Adam(0.01, global_clipnorm=0.1),
        batches(table(37)),
        compile_options={"metrics": metrics},
    )


@job()
def gradient_accumulation() -> dict[str, Any]:
    optimizer = optimizers.Adam(0.01, gradient_accumulation_steps=3, clipnorm=0.1)
    return train(dense_model(), optimizer, batches(table(80)))


@job(worlds=())
def moving_average_of_weights() -> dict[str, Any]:
    optimizer = optimizers.AdamW(0.01, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=2)
    return train(dense_model(), optimizer, batches(table(50)))


@job(worlds=())
def nesterov_momentum_on_a_schedule() -> dict[str, Any]:
    schedule = optimizers.schedules.CosineDecay(0.1, 8, warmup_steps=3, warmup_target=0.2)
    return train(
        dense_model(), optimizers.SGD(schedule, momentum=0.9, nesterov=True, clipvalue=0.05), batches(table(50))
    )


@job(worlds=())
def sparse_gradients() -> dict[str, Any]:
    generator = np.random.default_rng(3)
    model = keras.Sequential(
        [keras.Input((5,), dtype="int32"), layers.Embedding(30, 4), layers.Flatten(), layers.Dense(4)]
    )
    data = batches((generator.integers(0, 30, (37, 5)), generator.integers(0, 4, 37)))
    return train(model, optimizers.Adam(0.01), data)


class WordsAndPositions(layers.Layer):
    """Looks up words, which come from the rows, positions, which do not, and a type that each word of a row has."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.words, self.positions = layers.Embedding(30, 4), layers.Embedding(length, 4)
        self.types = layers.Embedding(2, 4)

    def call(self, inputs: Any) -> Any:
        positions = self.positions(keras.ops.arange(keras.ops.shape(inputs)[-1]))
        return self.words(inputs) + positions + self.types(keras.ops.zeros_like(inputs))


def _of_words_and_positions(rows: int, length: int = 5, **options: Any) -> dict[str, Any]:
    generator = np.random.default_rng(3)
    words = keras.Input((length,), dtype="int32")
    model = keras.Sequential([words, WordsAndPositions(length), layers.Flatten(), layers.Dense(4)])
    data = batches((generator.integers(0, 30, (rows, length)), generator.integers(0, 4, rows)), **options)
    return train(model, optimizers.Adam(0.01), data)


@job()
def embedding_of_positions() -> dict[str, Any]:
    """Adam squares each part of a sparse gradient: one worker has one part for a position. Some ranks have no rows."""
    return _of_words_and_positions(2 * BATCH + 1)


@job(worlds=())
def embedding_of_positions_in_batches_of_a_fixed_size() -> dict[str, Any]:
    return _of_words_and_positions(2 * BATCH, drop_remainder=True)


@job(worlds=())
def embedding_of_as_many_positions_as_rows() -> dict[str, Any]:
    return _of_words_and_positions(2 * BATCH, length=BATCH, drop_remainder=True)


@job(dtype="float32")
def half_precision_with_an_overflow_on_one_rank() -> dict[str, Any]:
    """One row overflows float16 in the second batch: the whole world skips that step and halves the scale."""
    x, y = table(5 * BATCH)
    x[BATCH + 1, 0] = 1e6
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(4, dtype="float32")])
        optimizer = optimizers.LossScaleOptimizer(optimizers.SGD(1e-3), initial_scale=1024.0)
        result = train(model, optimizer, batches((x.astype("float32"), y)))
    finally:
        keras.config.set_dtype_policy(policy)
    result["history"] = {
        "scale": [float(optimizer.dynamic_scale.numpy())],
        "steps": [int(optimizer.inner_optimizer.iterations.numpy())],
    }
    return result


@job(worlds=(), dtype="float32")
def bfloat16_of_keras_policy() -> dict[str, Any]:
    """Eight bits of mantissa: a gradient is rounded before ranks add it up, so one step differs in the third digit."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        x, y = table(5 * BATCH)
        model = keras.Sequential([keras.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(4, dtype="float32")])
        return train(model, optimizers.SGD(0.05, clipnorm=1.0), batches((x.astype("float32"), y)))
    finally:
        keras.config.set_dtype_policy(policy)
