"""Models with layers in common, and layers with weights in common, in two stages beside plain Keras."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import paceline
from paceline.comm.world import current_world

layers = keras.layers

_random = np.random.default_rng(0)
NOISE, ROWS, ONES = _random.normal(size=(8, 3)), _random.normal(size=(8, 5)), np.ones((8, 1))


def _check(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def _of_models(scope: Any, path: Path) -> list[Any]:
    """What a generator, a discriminator, both together and a part of the discriminator make in turns."""
    keras.utils.set_random_seed(5)
    with scope:
        generator = keras.Sequential([keras.Input((3,)), layers.Dense(6, "tanh"), layers.Dense(5)])
        x = keras.Input((5,))
        middle = layers.Dense(4, "tanh")(layers.Dense(6, "tanh")(x))
        discriminator = keras.Model(x, layers.Dense(1)(middle))
        features = keras.Model(x, middle)
        both = keras.Sequential([keras.Input((3,)), generator, discriminator])
        discriminator.compile(keras.optimizers.Adam(0.02), "mse")
        both.compile(keras.optimizers.Adam(0.02), "mse")
    found: list[Any] = []
    for _ in range(2):
        found += [discriminator.train_on_batch(ROWS, ONES), both.train_on_batch(NOISE, ONES)]
    found.append(features.predict(ROWS, verbose=0))

    def show(*_: Any) -> None:
        found.extend([generator.predict(NOISE, verbose=0), features.predict(ROWS, verbose=0)])

    shown = keras.callbacks.LambdaCallback(on_epoch_end=show)
    options = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0}
    found.append(both.fit(NOISE, ONES, callbacks=[shown], **options).history["loss"])
    discriminator.save(path)
    found.append(keras.models.load_model(path, compile=False).predict(ROWS, verbose=0))
    return found


def two_models(strategy: Any, folder: Path) -> None:
    """A GAN, and a model of features that is asked in the middle of a `fit`: each is cut elsewhere."""
    own = _of_models(strategy.scope(), folder / "stages.keras")
    plain = _of_models(contextlib.nullcontext(), folder / f"plain-{paceline.rank()}.keras")
    for one, other in zip(own, plain, strict=True):
        _check(one, other)


WORDS = _random.integers(0, 9, (15, 6))
NEXT_WORDS = np.roll(WORDS, -1, 1)


class Head(layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Scores of words by the table of an embedding."""

    def __init__(self, embedding: Any) -> None:
        super().__init__(name="head")
        self.embedding = embedding

    def call(self, hidden: Any) -> Any:
        """The scores."""
        return keras.ops.matmul(hidden, keras.ops.transpose(self.embedding.embeddings))


class Reversible(layers.Layer):  # type: ignore[misc]
    """As KerasHub's `ReversibleEmbedding`."""

    def build(self, _: Any) -> None:
        """Makes the table."""
        self.table = self.add_weight(shape=(9, 4), initializer="uniform")

    def call(self, given: Any, reverse: bool = False) -> Any:
        """Vectors of words, or scores for vectors."""
        table = self.table
        return keras.ops.matmul(given, keras.ops.transpose(table)) if reverse else keras.ops.take(table, given, axis=0)


def _hidden(vectors: Any) -> Any:
    seen = layers.MultiHeadAttention(2, 3)(vectors, vectors)
    return layers.Dense(4, "tanh")(layers.LayerNormalization()(layers.Add()([vectors, seen])))


def _tied_head() -> Any:
    x = keras.Input((6,), dtype="int32")
    table = layers.Embedding(9, 4, embeddings_regularizer="l2", name="words")
    return keras.Model(x, Head(table)(_hidden(table(x))))


def _reversed() -> Any:
    x = keras.Input((6,), dtype="int32")
    table = Reversible(name="words")
    return keras.Model(x, table(_hidden(table(x)), reverse=True))


def _argument() -> Any:
    x = keras.Input((6,), dtype="int32")
    table = layers.Embedding(9, 4, name="words")
    vectors = table(x)
    return keras.Model(x, keras.ops.einsum("btd,vd->btv", _hidden(vectors), table.embeddings))


def _looked_up_twice() -> Any:
    x = keras.Input((6,), dtype="int32")
    table = layers.Embedding(9, 4, name="words")
    hidden = _hidden(table(x))
    return keras.Model(x, layers.Dense(9)(layers.Multiply()([hidden, table(8 - x)])))


def _dense_twice() -> Any:
    x = keras.Input((6,), dtype="int32")
    dense = layers.Dense(4, "tanh", name="twice")
    return keras.Model(x, layers.Dense(9)(dense(layers.Dense(4)(dense(layers.Embedding(9, 4)(x))))))


TIED: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "tied_head": (_tied_head, lambda: keras.optimizers.AdamW(0.02, global_clipnorm=0.1, weight_decay=0.01)),
    "reversed": (_reversed, lambda: keras.optimizers.SGD(0.1, momentum=0.5, gradient_accumulation_steps=2)),
    "argument": (_argument, lambda: keras.optimizers.Adagrad(0.1, use_ema=True, ema_overwrite_frequency=2)),
    "looked_up_twice": (_looked_up_twice, lambda: keras.optimizers.Adam(0.02, global_clipnorm=0.1)),
    "dense_twice": (_dense_twice, lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Lion(0.01, clipnorm=1))),
}


def _trained(name: str, scope: Any) -> tuple[Any, list[Any]]:
    build, optimizer = TIED[name]
    keras.utils.set_random_seed(5)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with scope:
        model = build()
        model.compile(optimizer(), loss, metrics=["accuracy"])
    options = {"batch_size": 7, "epochs": 2, "shuffle": False, "verbose": 0}
    history = model.fit(WORDS, NEXT_WORDS, validation_data=(WORDS, NEXT_WORDS), **options).history
    return model, [
        *(history[name] for name in sorted(history)),
        model.predict(WORDS, verbose=0),
        model.evaluate(WORDS, NEXT_WORDS, verbose=0),
    ]


def _tied(schedule: str, name: str, folder: Path) -> None:
    """Trains, and goes on from a file, beside plain Keras."""
    stages = paceline.world_size() // 2 if paceline.world_size() == 4 else paceline.world_size()
    strategy = paceline.PipelineStrategy(stages, micro_batches=2, schedule=schedule)
    model, own = _trained(name, strategy.scope())
    plain, expected = _trained(name, contextlib.nullcontext())
    for one, other in zip(own, expected, strict=True):
        _check(one, other)
    weights = folder / "all.weights.h5"
    model.save_weights(weights)
    for one in (model, plain):
        one.load_weights(weights)
    options = {"batch_size": 7, "epochs": 1, "shuffle": False, "verbose": 0}
    _check(*(one.fit(WORDS, NEXT_WORDS, **options).history["loss"] for one in (model, plain)))
    values = [*zip(model.get_weights(), plain.get_weights(), strict=True)]
    here = [(one, other) for one, other in values if isinstance(one, np.ndarray)]
    assert 0 < len(here) < len(values)
    for one, other in here:
        _check(one, other)
    if name in _DESCRIBED:
        _goes_on_from_a_file(strategy, model, plain, folder / "all.keras")


_DESCRIBED = ("looked_up_twice", "dense_twice")
"""Models of Keras's own layers, which a `.keras` file can describe."""


def _goes_on_from_a_file(strategy: Any, model: Any, plain: Any, path: Path) -> None:
    """A file of the model in stages is read as a whole one, and in stages, with the optimizer's slots."""
    model.save(path)
    alone = keras.models.load_model(path)
    with strategy.scope():
        in_stages = keras.models.load_model(path)
    options = {"batch_size": 7, "epochs": 2, "shuffle": False, "verbose": 0}
    losses = [one.fit(WORDS, NEXT_WORDS, **options).history["loss"] for one in (plain, alone, in_stages)]
    _check(losses[1], losses[0])
    _check(losses[2], losses[0])
    _check(in_stages.predict(WORDS, verbose=0), alone.predict(WORDS, verbose=0))


class Counts(layers.Layer):  # type: ignore[misc]
    """Counts its calls, in integers and in numbers from which it computes."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)
        self.share = self.add_weight(shape=(), initializer="ones", trainable=False)

    def call(self, rows: Any) -> Any:
        """Other numbers with each call."""
        self.calls.assign_add(1)
        self.share.assign(self.share * 0.5)
        return rows * (1.0 + self.share)


def _counting(scope: Any) -> tuple[list[Any], Any]:
    keras.utils.set_random_seed(5)
    with scope:
        x = keras.Input((3,))
        hidden = Counts("first")(layers.Dense(4, "tanh")(x))
        model = keras.Model(x, layers.Dense(1)(Counts("second")(layers.Dense(4)(hidden))))
    found = [model.predict(NOISE, batch_size=4, verbose=0)]  # before it is compiled
    model.compile(keras.optimizers.SGD(0.1), "mse")
    found += model.fit(NOISE, ONES, batch_size=4, shuffle=False, verbose=0).history["loss"]
    found += [model.predict(NOISE, batch_size=3, verbose=0), model.predict_on_batch(NOISE)]
    found += [model.evaluate(NOISE, ONES, batch_size=4, verbose=0), model.predict(NOISE[:5], batch_size=4, verbose=0)]
    return found, model


def what_layers_assign_in_predict(strategy: Any, _: Path) -> None:
    """Layers that count their calls, on both stages."""
    own, model = _counting(strategy.scope())
    expected, plain = _counting(contextlib.nullcontext())
    for one, other in zip(own, expected, strict=True):
        _check(one, other)
    stage = [(one, other) for one, other in zip(model.layers, plain.layers, strict=True) if isinstance(one, Counts)]
    counted = [(one, other) for one, other in stage if isinstance(one.get_weights()[0], np.generic | np.ndarray)]
    assert counted
    for one, other in counted:
        assert int(one.get_weights()[0]) == int(other.get_weights()[0]) > 0


CASES: dict[str, Callable[[Any, Path], None]] = {
    case.__name__: case for case in (two_models, what_layers_assign_in_predict)
}


def run_case(name: str, folder: str, schedule: str = "") -> None:
    """Runs one of `CASES`, or of `TIED` under a schedule, on every rank."""
    keras.config.set_floatx("float64")
    with current_world().training_alone():  # as `--allow-independent`: each rank trains a plain model, too
        if schedule:
            _tied(schedule, name, Path(folder))
        else:
            CASES[name](paceline.PipelineStrategy(2, micro_batches=2), Path(folder))
