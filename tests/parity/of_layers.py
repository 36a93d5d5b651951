"""Layers whose step depends on more than their own row: normalisation, random numbers, sequences, shared weights."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import optimizers

from parity.ingredients import BATCH, batches, cross_entropy, digits, layers, table, train
from parity.registry import job

_ROWS = 3 * BATCH + 5


def _dense_around(*middle: Any) -> keras.Model:
    return keras.Sequential([keras.Input((8,)), layers.Dense(16, "relu"), *middle, layers.Dense(4)])


def _train(model: keras.Model, rows: int = _ROWS, **options: Any) -> dict[str, Any]:
    return train(model, optimizers.Adam(0.01), batches(table(rows)), **options)


@job(worlds=())
def batch_normalization_synchronized() -> dict[str, Any]:
    return _train(_dense_around(layers.BatchNormalization(synchronized=True)))


@job()
def batch_normalization_synchronized_where_ranks_have_no_row() -> dict[str, Any]:
    return _train(_dense_around(layers.BatchNormalization(synchronized=True)), BATCH + 1)


class Tally(layers.Layer):
    """Weights moved by the data, each with what it is over ranks: sums, a number assigned anew, a moving mean."""

    def build(self, shape: Any) -> None:
        def weight(aggregation: str, **options: Any) -> Any:
            options = {"initializer": "zeros", "trainable": False, **options}
            return self.add_weight(shape=(shape[-1],), aggregation=aggregation, **options)

        self.total, self.less, self.last = weight("sum"), weight("sum", dtype="int64"), weight("sum")
        self.moving = weight("mean")

    def call(self, inputs: Any, training: bool = False) -> Any:
        sums = keras.ops.sum(inputs, axis=0)
        self.total.assign_add(sums)
        self.less.assign_sub(keras.ops.sum(keras.ops.cast(inputs > 0, "int64"), axis=0))
        self.last.assign(sums)
        if training:
            self.moving.assign(0.9 * self.moving + 0.1 * keras.ops.mean(inputs, axis=0))
        return inputs + 0.01 * self.moving


@job()
def weights_assigned_from_data() -> dict[str, Any]:
    data = batches(table(37))
    return _train(keras.Sequential([keras.Input((8,)), Tally(), layers.Dense(4)]), 37, validation_data=data)


def _images(model_layers: list[Any], rows: int = _ROWS) -> dict[str, Any]:
    model = keras.Sequential([keras.Input((12, 12, 1)), *model_layers, layers.Flatten(), layers.Dense(10)])
    return train(model, optimizers.SGD(0.05), batches(digits(rows)))


@job(worlds=())
def group_and_layer_normalization() -> dict[str, Any]:
    return _images(
        [layers.Conv2D(4, 3), layers.GroupNormalization(2), layers.LayerNormalization(), layers.UnitNormalization()]
    )


@job()
def dropout() -> dict[str, Any]:
    more = [layers.Dense(9, "tanh"), layers.Dropout(0.2, seed=7), layers.AlphaDropout(0.3)]
    return _train(_dense_around(layers.Dropout(0.4), *more))


@job(worlds=())
def dropout_with_a_seed() -> dict[str, Any]:
    return _train(_dense_around(layers.Dropout(0.4, seed=7)))


@job(worlds=())
def dropout_of_odd_rows() -> dict[str, Any]:
    """7 numbers a row: most ranks begin in the middle of a generator's block."""
    model = keras.Sequential([keras.Input((8,)), layers.Dense(7, "relu"), layers.Dropout(0.5), layers.Dense(4)])
    return _train(model)


@job(worlds=())
def noise_and_normalization_of_images() -> dict[str, Any]:
    return _images(
        [
            *(layers.GaussianNoise(0.1), layers.Conv2D(4, 3), layers.GroupNormalization(2)),
            *(layers.SpatialDropout2D(0.3), layers.LayerNormalization(), layers.GaussianDropout(0.2)),
        ]
    )


@job(worlds=())
def dropout_in_batches_of_a_fixed_size() -> dict[str, Any]:
    """The rows are known when the step is built."""
    data = batches(table(3 * BATCH), drop_remainder=True)
    return train(_dense_around(layers.GaussianNoise(0.1), layers.Dropout(0.4)), optimizers.Adam(0.01), data)


@job(worlds=())
def alpha_dropout() -> dict[str, Any]:
    return _train(_dense_around(layers.AlphaDropout(0.3)))


@job(worlds=())
def augmentation() -> dict[str, Any]:
    """These layers know float32 only; what follows computes in float64."""
    return _images(
        [
            layers.RandomFlip(dtype="float32"),
            layers.RandomTranslation(0.1, 0.1, dtype="float32"),
            layers.RandomContrast(0.2, dtype="float32"),
            layers.RandomBrightness(0.2, value_range=(0, 1), dtype="float32"),
        ]
    )


@job(worlds=())
def dropout_with_several_steps_per_execution() -> dict[str, Any]:
    return _train(_dense_around(layers.Dropout(0.4)), compile_options={"steps_per_execution": 3})


@job(worlds=())
def dropout_run_eagerly() -> dict[str, Any]:
    return _train(_dense_around(layers.Dropout(0.4)), compile_options={"run_eagerly": True})


def _sentences(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Padded sequences of 3 to 9 words, and a class for each."""
    generator = np.random.default_rng(1)
    words = generator.integers(1, 30, (rows, 9))
    words[np.arange(9) >= generator.integers(3, 10, rows)[:, None]] = 0
    return words, generator.integers(0, 4, rows)


def _of_sentences(body: Callable[[Any], Any], mask_zero: bool = True) -> dict[str, Any]:
    inputs = keras.Input((9,), dtype="int64")
    embedded = layers.Embedding(30, 8, mask_zero=mask_zero)(inputs)
    model = keras.Model(inputs, layers.Dense(4)(body(embedded)))
    return train(model, optimizers.Adam(0.01), batches(_sentences(_ROWS)))


@job(worlds=())
def masked_lstm() -> dict[str, Any]:
    return _of_sentences(layers.LSTM(6, dropout=0.2))


@job(worlds=())
def bidirectional_gru() -> dict[str, Any]:
    return _of_sentences(layers.Bidirectional(layers.GRU(5)), mask_zero=False)


@job(worlds=())
def multi_head_attention_with_dropout() -> dict[str, Any]:
    def body(embedded: Any) -> Any:
        attended = layers.MultiHeadAttention(2, 4, dropout=0.3)(embedded, embedded)
        return layers.GlobalAveragePooling1D()(layers.Add()([embedded, attended]))

    return _of_sentences(body)


@job(worlds=())
def time_distributed_dropout() -> dict[str, Any]:
    def body(embedded: Any) -> Any:
        return layers.GlobalMaxPooling1D()(layers.TimeDistributed(layers.Dropout(0.3))(embedded))

    return _of_sentences(body, mask_zero=False)


@job(worlds=())
def rematerialised_layers() -> dict[str, Any]:
    """Eagerly: in graphs Keras cannot rematerialise a layer whose `call` gets keywords."""
    with keras.RematScope(mode="full"):
        again = layers.Dense(12, "gelu")
    return _train(_dense_around(again, layers.Dropout(0.4)), compile_options={"run_eagerly": True})


@job(worlds=())
def weights_frozen_after_a_first_fit() -> dict[str, Any]:
    base = keras.Sequential([keras.Input((8,)), layers.Dense(16, "relu"), layers.Dense(12, "relu")])
    model = keras.Sequential([base, layers.Dense(4)])
    first = _train(model, epochs=1)["history"]
    base.trainable = False
    model.compile(optimizers.SGD(0.1), cross_entropy(), metrics=["accuracy"])
    second = model.fit(batches(table(_ROWS)), epochs=2, verbose=0).history
    return {"model": model, "history": first | {f"frozen_{name}": values for name, values in second.items()}}
