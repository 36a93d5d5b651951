"""Models whose steps need the whole batch, trained with plain Keras's `fit`: one function a case."""

from typing import Any

CASES = (
    "contrastive",
    "normalized",
    "deep",
    "spectral",
    "codebook",
    "noise",
    "branch",
    "row_by_row",
    "diverse",
    "unknown_length",
    "square",
    "one_row",
    "labels_of_the_step",
    "layer_of_the_loss",
    "two_lengths",
)


def run_case(name: str) -> list[float]:
    """The losses and weights after two epochs of batches of 7 rows, and a last one of 3."""
    import keras
    import numpy as np
    import tensorflow as tf

    keras.utils.set_random_seed(5)
    keras.config.set_floatx("float64")
    if name == "square":
        return _square()
    if name == "one_row":
        return _one_row()
    if name == "labels_of_the_step":
        return _labels_of_the_step()
    if name == "layer_of_the_loss":
        return _layer_of_the_loss()
    if name == "two_lengths":
        return _two_lengths()
    model, loss = _models()[name]()
    x = np.random.default_rng(1).normal(size=(31, 8))
    y = np.random.default_rng(2).normal(size=(31, 4))
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
    if name == "unknown_length":  # plain Keras counts a step, and draws seeds, at the end of each epoch
        data = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda *_: True).batch(7)
        history = model.fit(data, epochs=3, verbose=0).history
    else:
        history = model.fit(x, y, batch_size=7, epochs=2, verbose=0).history
    history["evaluated"] = [model.evaluate(x[:9], y[:9], batch_size=4, verbose=0)]
    predicted = model.predict(x[:9], batch_size=4, verbose=0)
    numbers = [*history["loss"], *history["evaluated"], *predicted.reshape(-1)]
    return [float(number) for number in [*numbers, *np.concatenate([w.reshape(-1) for w in model.get_weights()])]]


def _two_lengths() -> list[float]:
    """Many rows without labels and few with labels, batched apart (SimCLR, NNCLR, AdaMatch)."""
    import keras
    import numpy as np
    import tensorflow as tf

    class HalfLabelled(keras.Sequential):
        def train_step(self, data):
            rows, (x, y) = data
            together = tf.concat([rows, x], 0)
            with tf.GradientTape() as tape:
                codes = self(together, training=True)
                loss = tf.reduce_mean(tf.exp(tf.matmul(codes, codes, transpose_b=True)))
                loss += tf.reduce_mean((self(x, training=True) - y) ** 2)
            weights = self.trainable_weights
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return {"loss": loss}

        def test_step(self, data):
            rows, (x, y) = data
            return {"loss": tf.reduce_mean(self(rows)) + tf.reduce_mean((self(x) - y) ** 2)}

    numbers = np.random.default_rng(1)

    def batches_of(rows: int, size: int, *widths: int) -> tf.data.Dataset:
        arrays = tuple(numbers.normal(size=(rows, width)) for width in widths)
        return tf.data.Dataset.from_tensor_slices(arrays).shuffle(rows, seed=3).batch(size)

    def with_noise(x, y):
        return x + tf.random.normal(tf.shape(x), seed=4, dtype=x.dtype), y

    data = tf.data.Dataset.zip((batches_of(33, 9, 8).map(lambda x: x), batches_of(15, 4, 8, 4).map(with_noise)))
    layers = [keras.layers.Dense(6, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)]
    model = HalfLabelled([keras.Input((8,)), *layers, keras.layers.Dense(4)])
    model.compile(keras.optimizers.Adam(0.01))
    losses = model.fit(data.prefetch(2), epochs=2, verbose=0).history["loss"]
    found = [*losses, model.evaluate(data, verbose=0)]
    return [float(number) for number in [*found, *np.concatenate([w.reshape(-1) for w in model.get_weights()])]]


def _square() -> list[float]:
    """All batches have as many rows as the layer has units and inputs: no size tells rows from columns."""
    import keras
    import numpy as np

    layers = keras.layers
    model = keras.Sequential([keras.Input((5, 7)), layers.Bidirectional(layers.LSTM(7)), layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
    x, y = (np.random.default_rng(1).normal(size=size) for size in ((28, 5, 7), (28, 1)))
    numbers = model.fit(x, y, batch_size=7, epochs=2, verbose=0).history["loss"]
    return [float(number) for number in [*numbers, *np.concatenate([w.reshape(-1) for w in model.get_weights()])]]


def _one_row() -> list[float]:
    """Batches of one row, as keras.io's multiple-instance learning has them: all ranks but one have none."""
    import keras
    import numpy as np

    layers = keras.layers
    model = keras.Sequential([keras.Input((8,)), layers.Dense(6, "tanh"), layers.Dropout(0.3), layers.Dense(4)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], jit_compile=False)
    x, y = (np.random.default_rng(seed).normal(size=(5, columns)) for seed, columns in ((1, 8), (2, 4)))
    history = model.fit(x, y, batch_size=1, epochs=2, verbose=0).history
    numbers = [*history["loss"], *history["mae"]]
    return [float(number) for number in [*numbers, *np.concatenate([w.reshape(-1) for w in model.get_weights()])]]


def _labels_of_the_step() -> list[float]:
    """Steps that make labels of another kind than the data's: which metric "accuracy" is goes by theirs."""
    import keras
    import numpy as np

    class ClassesOfOneHot(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            return super().train_step((data[0], keras.ops.argmax(data[1], axis=-1)))

    class OneHotOfClasses(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            one_hot = keras.ops.one_hot(data[1], 4, dtype="float64")
            return super().train_step((data[0], 0.7 * one_hot + 0.3 * keras.ops.flip(one_hot, axis=0)))

    x, y = np.random.default_rng(1).normal(size=(31, 8)), np.random.default_rng(2).integers(0, 4, 31)
    numbers = []
    for class_, loss, labels in (
        (ClassesOfOneHot, "sparse_categorical_crossentropy", np.eye(4)[y]),
        (OneHotOfClasses, "categorical_crossentropy", y),
    ):
        model = class_([keras.Input((8,)), keras.layers.Dense(4, "softmax")])
        model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
        history = model.fit(x, labels, batch_size=7, epochs=2, verbose=0).history
        numbers += [*history["loss"], *history["accuracy"]]
    return [float(number) for number in numbers]


def _layer_of_the_loss() -> list[float]:
    """A recommender: `compute_loss` calls a layer that `call` does not, so `call` does not build it."""
    import keras
    import numpy as np

    class Retrieval(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.users, self.items = keras.layers.Embedding(9, 4), keras.layers.Embedding(11, 4)

        def call(self, x: Any) -> Any:
            return self.users(x["user"])

        def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
            likeness = keras.ops.matmul(y_pred, keras.ops.transpose(self.items(x["item"])))
            own = keras.ops.eye(keras.ops.shape(likeness)[0], dtype="float64")
            return keras.ops.sum(keras.losses.categorical_crossentropy(own, likeness, from_logits=True))

    model = Retrieval()
    model.compile(keras.optimizers.Adagrad(0.1), jit_compile=False)
    x = {name: np.random.default_rng(seed).integers(0, 9, 31) for seed, name in enumerate(("user", "item"))}
    numbers = model.fit(x, batch_size=7, epochs=2, verbose=0).history["loss"]
    return [float(number) for number in [*numbers, *np.concatenate([w.reshape(-1) for w in model.get_weights()])]]


def _models() -> dict[str, Any]:
    import keras
    import tensorflow as tf

    layers = keras.layers

    def dense(*middle: Any) -> keras.Model:
        return keras.Sequential([keras.Input((8,)), layers.Dense(6, "tanh"), *middle, layers.Dense(4)])

    def normalized_dense() -> keras.Model:
        return keras.Sequential([layers.BatchNormalization(), layers.Dense(5, "relu")])

    class Layer(layers.Layer):
        def __init__(self, function: Any) -> None:
            super().__init__()
            self._function = function

        def call(self, x: Any) -> Any:
            return self._function(x)

    class Codebook(layers.Layer):
        def build(self, shape: Any) -> None:
            self.codes = self.add_weight(shape=(5, shape[-1]), initializer="glorot_uniform", trainable=False)

        def call(self, x: Any) -> Any:
            far = tf.reduce_sum((x[:, None] - self.codes[None]) ** 2, -1)
            chosen = tf.one_hot(tf.argmin(far, 1), 5, dtype=x.dtype)
            sums, counts = tf.matmul(chosen, x, transpose_a=True), tf.reduce_sum(chosen, 0)[:, None]
            self.codes.assign(0.9 * self.codes + 0.1 * tf.math.divide_no_nan(sums, counts))
            return x + tf.stop_gradient(tf.matmul(chosen, self.codes) - x)

    class Diverse(layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(0.1 * tf.reduce_sum(tf.matmul(x, x, transpose_b=True) ** 2))
            return x

    def contrastive(y: Any, y_pred: Any) -> Any:
        likeness = tf.matmul(tf.math.l2_normalize(y_pred, 1), tf.math.l2_normalize(y, 1), transpose_b=True)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(y)[0]), likeness)

    def halves(x: Any) -> Any:
        return tf.cond(tf.reduce_mean(x) > 0, lambda: x * 2.0, lambda: tf.sort(x, axis=0) + x)

    return {
        "contrastive": lambda: (dense(), contrastive),
        "unknown_length": lambda: (dense(layers.Dropout(0.5, seed=2)), "mse"),
        "normalized": lambda: (dense(layers.BatchNormalization()), "mse"),
        "deep": lambda: (dense(*(normalized_dense() for _ in range(4))), "mse"),
        "spectral": lambda: (dense(layers.SpectralNormalization(layers.Dense(5))), "mse"),
        "codebook": lambda: (dense(Codebook()), "mse"),
        "noise": lambda: (dense(Layer(lambda x: x + 0.1 * tf.random.normal(tf.shape(x), dtype=x.dtype))), "mse"),
        "branch": lambda: (dense(Layer(halves)), "mse"),
        "row_by_row": lambda: (dense(Layer(lambda x: tf.map_fn(lambda r: r * tf.reduce_max(r), x))), "mse"),
        "diverse": lambda: (dense(Diverse()), "mse"),
    }
