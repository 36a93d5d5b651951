"""Steps that users write: what tutorials and papers put into `train_step`, between the loss and the weights."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import optimizers

from parity.ingredients import BATCH, batches, layers, table
from parity.registry import job

ROWS = 2 * BATCH + 5

Loss = Callable[[keras.Model, Any, Any, Any], Any]
Treat = Callable[[Any], Any]


def mean_square(y: Any, y_pred: Any) -> Any:
    return keras.losses.MeanSquaredError()(y, y_pred)


def mean_absolute(y: Any, y_pred: Any) -> Any:
    return keras.losses.MeanAbsoluteError()(y, y_pred)


def _rowwise(y: Any, y_pred: Any) -> Any:
    return tf.reduce_mean((y - y_pred) ** 2, axis=1)


class Stepping(keras.Model):
    """Two dense layers, a loss and what is done with its gradients."""

    def __init__(self, loss: Loss, treat: Treat = lambda gradients: gradients) -> None:
        super().__init__()
        self.hidden = layers.Dense(6, "tanh", kernel_regularizer=keras.regularizers.L2(1e-2))
        self.out = layers.Dense(8)
        self.weight = self.add_weight(name="weight", shape=(), initializer="ones")
        self.tracker = keras.metrics.Mean(name="tracked")
        self._loss_of, self._treat = loss, treat

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self._loss_of(self, x, y, self(x, training=True))
        variables = self.trainable_variables
        gradients = self._treat(tape.gradient(loss, variables))
        self.optimizer.apply(
            [g for g in gradients if g is not None],
            [variable for g, variable in zip(gradients, variables, strict=True) if g is not None],
        )
        loss = tf.reduce_mean(loss) if loss.shape.rank else loss
        self.tracker.update_state(loss, sample_weight=0.5)
        return {"tracked": self.tracker.result(), "last": loss}

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        self.tracker.update_state(self._loss_of(self, x, y, self(x)))
        return {"tracked": self.tracker.result()}


def _data(rows: int = ROWS) -> tf.data.Dataset:
    x, _ = table(rows)
    return batches((x, tf.sin(x)))


def _trained(models: dict[str, tuple[keras.Model, dict[str, Any]]], epochs: int = 2, **fit: Any) -> dict[str, Any]:
    """Trains all of them, each compiled with its options; their weights one after the other."""
    weights, history = [], {}
    for name, (model, options) in models.items():
        model(tf.zeros((1, 8)))
        model.compile(**{"optimizer": optimizers.SGD(0.1), **options})
        # An eager step takes as long as a trace, each time.
        arguments = {"x": _data(), "epochs": 1 if options.get("run_eagerly") else epochs, "verbose": 0, **fit}
        for key, values in model.fit(**arguments).history.items():
            history[f"{name}_{key}"] = values
        weights += model.get_weights()
    return {"weights": weights, "history": history}


def _of(losses: dict[str, Loss], **fit: Any) -> dict[str, Any]:
    return _trained({name: (Stepping(loss), {}) for name, loss in losses.items()}, **fit)


@job(worlds=())
def own_steps_that_add_up_losses() -> dict[str, Any]:
    """Keras losses, means of one's own, regularisers and a weight that is learned, in every order."""
    return _of(
        {
            "keras_and_regulariser": lambda m, x, y, p: mean_square(y, p) + tf.add_n(m.losses),
            "keras_and_own": lambda m, x, y, p: 0.5 * mean_square(y, p) + tf.reduce_mean(tf.abs(p)) / 3.0,
            "own_and_keras": lambda m, x, y, p: tf.reduce_mean(tf.abs(p)) - 0.5 * mean_square(y, p) + 1.0,
            "learned_weight": lambda m, x, y, p: m.weight * mean_square(y, p) + tf.square(m.weight) + sum(m.losses),
            "stacked": lambda m, x, y, p: keras.ops.sum([mean_square(y, p), mean_absolute(y, p), tf.reduce_mean(p)]),
            "annealed": lambda m, x, y, p: (
                mean_square(y, p) * tf.minimum(0.1 + tf.cast(m.optimizer.iterations, p.dtype), 1.0)
            ),
        }
    )


@job(worlds=())
def own_steps_with_a_keras_loss_for_the_log_only() -> dict[str, Any]:
    def loss(model: Any, x: Any, y: Any, y_pred: Any) -> Any:
        mean_absolute(y, y_pred)
        return tf.reduce_mean((y - y_pred) ** 2)

    return _of({"own": loss}, validation_data=_data(7))


@job(worlds=())
def own_steps_that_sum_over_rows() -> dict[str, Any]:
    """What tutorials of `tf.distribute` teach, and sums that are divided by what the rows are or weigh."""

    def masked(model: Any, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_sum(_rowwise(y, y_pred)) / tf.cast(tf.shape(x)[0], y_pred.dtype)

    return _of(
        {
            "average": lambda m, x, y, p: tf.nn.compute_average_loss(_rowwise(y, p)),
            "average_of_given": lambda m, x, y, p: (
                tf.nn.compute_average_loss(_rowwise(y, p), global_batch_size=BATCH)
                + tf.nn.scale_regularization_loss(m.losses)
            ),
            "sum": lambda m, x, y, p: tf.reduce_sum(_rowwise(y, p)) * (1.0 / BATCH) + sum(m.losses),
            "sum_alone": lambda m, x, y, p: keras.ops.sum(0.1 * _rowwise(y, p)),
            "divided": masked,
        }
    )


def _noisy(gradients: Any) -> Any:
    return [None if gradient is None else gradient + 0.01 * tf.sign(gradient) for gradient in gradients]


def _clipped(gradients: Any) -> Any:
    return tf.clip_by_global_norm(gradients, 0.3)[0]


@job(worlds=())
def own_steps_that_change_gradients() -> dict[str, Any]:
    def keras_loss(model: Any, x: Any, y: Any, y_pred: Any) -> Any:
        return mean_square(y, y_pred)

    def own(model: Any, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_mean((y - y_pred) ** 2)

    eager = {"run_eagerly": True}
    accumulating = {"optimizer": optimizers.Adam(0.01, gradient_accumulation_steps=2)}
    return _trained(
        {
            "clipped": (Stepping(keras_loss, _clipped), {}),
            "own_clipped": (Stepping(own, _clipped), {}),
            "noisy": (Stepping(own, _noisy), {}),
            "eager": (Stepping(keras_loss, _clipped), eager),
            "own_eager": (Stepping(own, _noisy), eager),
            "accumulated": (Stepping(own, _clipped), accumulating),
        }
    )


class SharpnessAware(Stepping):
    """Two gradients in a step, the first of which moves the weights by its norm (SAM, arXiv:2010.01412)."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        variables = [*self.hidden.trainable_variables, *self.out.trainable_variables]
        with tf.GradientTape() as tape:
            loss = mean_square(y, self(x, training=True))
        gradients = tape.gradient(loss, variables)
        steps = [gradient * 0.05 / tf.linalg.global_norm(gradients) for gradient in gradients]
        for variable, step in zip(variables, steps, strict=True):
            variable.assign_add(step)
        with tf.GradientTape() as tape:
            moved = mean_square(y, self(x, training=True))
        gradients = tape.gradient(moved, variables)
        for variable, step in zip(variables, steps, strict=True):
            variable.assign_sub(step)
        self.optimizer.apply(gradients, variables)
        self.tracker.update_state(loss)
        norm = {} if tf.executing_eagerly() else {"norm": tf.linalg.global_norm(gradients)}
        return {"tracked": self.tracker.result(), **norm}


class LookingAhead(Stepping):
    """The gradient of a gradient step (first-order and second-order terms, as in MAML, arXiv:1703.03400)."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        kernel, bias = self.out.kernel.value, self.out.bias.value
        variables = [*self.hidden.trainable_variables, *self.out.trainable_variables]
        with tf.GradientTape() as outer:
            features = self.hidden(x)
            with tf.GradientTape() as inner:
                loss = mean_square(y, self.out(features))
            slope = inner.gradient(loss, [self.out.kernel, self.out.bias])
            ahead = features @ (kernel - 0.1 * slope[0]) + (bias - 0.1 * slope[1])
            target = self.loss_ahead(tf.cos(x), ahead)
        self.optimizer.apply(outer.gradient(target, variables), variables)
        self.tracker.update_state(target)
        return {"tracked": self.tracker.result()}

    def loss_ahead(self, wanted: Any, ahead: Any) -> Any:
        return tf.reduce_mean((wanted - ahead) ** 2)


class Critic(Stepping):
    """The critic of a WGAN with gradient penalty (arXiv:1704.00028): means of its own, and a tape within a tape."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        rows = tf.shape(x)[0]
        between = x + keras.random.uniform((rows, 1), seed=3) * (y - x)
        variables = [*self.hidden.trainable_variables, *self.out.trainable_variables]
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(between)
                said = self(between, training=True)
            slopes = inner.gradient(said, [between])[0]
            penalty = tf.reduce_mean((tf.sqrt(tf.reduce_sum(slopes**2, axis=1) + 1e-9) - 1.0) ** 2)
            loss = tf.reduce_mean(self(y)) - tf.reduce_mean(self(x)) + 10.0 * penalty
        self.optimizer.apply(outer.gradient(loss, variables), variables)
        self.tracker.update_state(loss)
        return {"tracked": self.tracker.result(), "penalty": penalty}


@job(worlds=())
def own_steps_of_papers() -> dict[str, Any]:
    def none(*_: Any) -> Any:
        return None

    return _trained(
        {
            "sharpness": (SharpnessAware(none), {}),
            "sharpness_eager": (SharpnessAware(none), {"run_eagerly": True}),
            "critic": (Critic(none), {"optimizer": optimizers.Adam(0.01)}),
            "ahead": (LookingAhead(none), {}),
            "several_steps": (SharpnessAware(none), {"steps_per_execution": 2}),
        }
    )


class InFunctions(Stepping):
    """A step out of `tf.function`s, which TensorFlow would trace once for all of them."""

    @tf.function
    def loss_of(self, y: Any, y_pred: Any) -> Any:
        if tf.reduce_mean(y_pred) > 1e9:  # AutoGraph's
            return tf.zeros([], y_pred.dtype)
        return mean_square(y, y_pred)

    @tf.function
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.of_prediction(x, y)
        variables = [*self.hidden.trainable_variables, *self.out.trainable_variables]
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        self.tracker.update_state(loss)
        return {"tracked": self.tracker.result(), "last": loss}

    @tf.function
    def of_prediction(self, x: Any, y: Any) -> Any:
        return mean_square(y, self(x, training=True))

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        self.tracker.update_state(self.of_prediction(x, y))
        return {"tracked": self.tracker.result(), "last": self.loss_of(y, self(x))}


@job(worlds=())
def own_steps_out_of_functions() -> dict[str, Any]:
    def none(*_: Any) -> Any:
        return None

    data = {"validation_data": _data(7)}
    first = _trained({"graph": (InFunctions(none), {}), "eager": (InFunctions(none), {"run_eagerly": True})}, **data)
    model = Stepping(lambda m, x, y, p: m.loss_of(y, p))
    model.loss_of = tf.function(mean_square)  # type: ignore[attr-defined]
    again = {name: _trained({name: (model, {})}, **data) for name in ("compiled", "compiled_again")}
    history = [first["history"], *(result["history"] for result in again.values())]
    return {
        "weights": [*first["weights"], *model.get_weights()],
        "history": {name: values for part in history for name, values in part.items()},
    }


class AddingUp(Stepping):
    """Accumulation as it is written by hand: gradients go through variables, and are applied in a branch."""

    def build(self, shape: Any) -> None:
        super().build(shape)
        self.hidden.build(shape)
        self.out.build((None, 6))
        self.weights_of_step = [*self.hidden.trainable_variables, *self.out.trainable_variables]
        self.count = tf.Variable(0, trainable=False)
        self.sums = [tf.Variable(tf.zeros(one.shape, one.dtype), trainable=False) for one in self.weights_of_step]

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        self.count.assign_add(1)
        with tf.GradientTape() as tape:
            loss = mean_square(y, self(x, training=True))
        for total, gradient in zip(self.sums, tape.gradient(loss, self.weights_of_step), strict=True):
            total.assign_add(gradient)
        tf.cond(self.count % 2 == 0, self.update, lambda: None)
        self.tracker.update_state(self.optimizer.learning_rate)
        return {"tracked": self.tracker.result(), "rate": self.optimizer.learning_rate}

    def update(self) -> None:
        self.optimizer.apply([total / 2.0 for total in self.sums], self.weights_of_step)
        for total in self.sums:
            total.assign(tf.zeros_like(total))


class OneLossAfterAnother(Stepping):
    """Two updates in a step: from a Keras loss, and from one loss per row."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        variables = [*self.hidden.trainable_variables, *self.out.trainable_variables]
        for loss_of in (mean_square, _rowwise):
            with tf.GradientTape() as tape:
                loss = loss_of(y, self(x, training=True))
            gradients = tape.gradient(loss, variables)
            if not tf.executing_eagerly():  # there nothing would tell any more whose they are
                gradients = [0.1 * one for one in gradients]
            self.optimizer.apply(gradients, variables)
        return {"steps": self.optimizer.iterations}


class RowsAhead(LookingAhead):
    """With one loss per row at the end: its gradients are a rank's, though made of the global ones."""

    def loss_ahead(self, wanted: Any, ahead: Any) -> Any:
        return 0.1 * _rowwise(wanted, ahead)


class FirstOrderAhead(Stepping):
    """MAML's first-order form: gradients of tensors, which the step has made of weights and their gradients."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        variables = [self.out.kernel, self.out.bias]
        features = self.hidden(x)
        with tf.GradientTape() as tape:
            loss = mean_square(y, self.out(features))
        fast = [one.value - 0.1 * slope for one, slope in zip(variables, tape.gradient(loss, variables), strict=True)]
        with tf.GradientTape() as tape:
            tape.watch(fast)
            ahead = tf.reduce_mean((tf.cos(x) - features @ fast[0] - fast[1]) ** 2)
        self.optimizer.apply(tape.gradient(ahead, fast), variables)
        self.tracker.update_state(ahead)
        return {"tracked": self.tracker.result()}


class RowByRow(Stepping):
    """Each row's gradient is clipped by itself, as in differentially private training."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        variables = [*self.hidden.trainable_variables, *self.out.trainable_variables]

        def of_row(row: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((row[1][None] - self(row[0][None])) ** 2)
            return tf.clip_by_global_norm(tape.gradient(loss, variables), 0.1)[0]

        each = tf.vectorized_map(of_row, (x, y))
        self.optimizer.apply([tf.reduce_mean(one, axis=0) for one in each], variables)
        return {"steps": self.optimizer.iterations}


class Forces(layers.Layer):
    """The slope of a sum, computed in the model itself."""

    def call(self, inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            energy = tf.reduce_sum(tf.tanh(inputs) ** 2)
        return tape.gradient(energy, inputs)


def _with_forces() -> keras.Model:
    inputs = keras.Input((8,))
    return keras.Model(inputs, layers.Dense(8)(Forces()(layers.Dense(4)(inputs))))


def _at_points(model: keras.Model, x: Any, y: Any, y_pred: Any) -> Any:
    """A Keras loss, and how far the slope at points that are no data is from one."""
    points = tf.reshape(tf.linspace(tf.constant(-1.0, x.dtype), 1.0, 40), (5, 8))
    with tf.GradientTape() as tape:
        tape.watch(points)
        values = tf.tanh(model(points))
    return mean_square(y, y_pred) + tf.reduce_mean((tape.gradient(values, points) - 1.0) ** 2)


@job(worlds=())
def own_steps_in_corners() -> dict[str, Any]:
    """Each was wrong once, or crashed; also with batches of a fixed size, where rows look like any other axis."""

    def mixed(model: Any, x: Any, y: Any, y_pred: Any) -> Any:
        return model.optimizer.scale_loss(mean_square(y, y_pred) + tf.reduce_mean(tf.abs(y_pred)))

    def scaled(model: Any, x: Any, y: Any, y_pred: Any) -> Any:
        return model.optimizer.scale_loss(tf.reduce_mean((y - y_pred) ** 2))

    def divided(model: Any, x: Any, y: Any, y_pred: Any) -> Any:
        return (keras.ops.sum(_rowwise(y, y_pred)) + tf.reduce_sum(tf.abs(y_pred)) / 9.0) / keras.ops.shape(x)[0]

    def stopped(model: Any, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_mean((y - y_pred) ** 2) + tf.stop_gradient(mean_square(y, y_pred) + tf.reduce_mean(y_pred))

    def mapped(model: Any, x: Any, y: Any, y_pred: Any) -> Any:
        return tf.reduce_mean(tf.vectorized_map(lambda row: tf.reduce_sum(row**2), y - y_pred))

    def none(*_: Any) -> Any:
        return None

    scaling = optimizers.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=8.0)
    scaling_again = optimizers.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=8.0)
    accumulating = optimizers.SGD(0.1, gradient_accumulation_steps=2)
    uneven = {
        "added_up": (AddingUp(none), {}),
        "rows_after": (OneLossAfterAnother(none), {}),
        "rows_after_eagerly": (OneLossAfterAnother(none), {"run_eagerly": True, "optimizer": optimizers.SGD(0.01)}),
        "rows_ahead": (RowsAhead(none), {}),
        "mapped": (Stepping(mapped), {"run_eagerly": True}),
        "first_order": (FirstOrderAhead(none), {}),
        "row_by_row": (RowByRow(none), {}),
        "forces": (_with_forces(), {"loss": "mse"}),
    }
    even = {
        "scaled": (Stepping(mixed), {"optimizer": scaling}),
        "scaled_eagerly": (Stepping(scaled), {"optimizer": scaling_again, "run_eagerly": True}),
        "forces_of_few": (_with_forces(), {"loss": "mse"}),
        "divided": (Stepping(divided), {}),
        "stopped": (Stepping(stopped), {}),
        "points": (Stepping(_at_points), {}),
        "accumulated": (
            Stepping(lambda m, x, y, p: mean_square(y, p), lambda g: [None, *g[1:]]),
            {"optimizer": accumulating},
        ),
    }
    x, _ = table(2 * BATCH)
    results = [_trained(uneven), _trained(even, x=batches((x, tf.sin(x)), drop_remainder=True))]
    return {
        "weights": [weight for result in results for weight in result["weights"]],
        "history": {name: values for result in results for name, values in result["history"].items()},
    }
