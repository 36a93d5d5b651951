"""What PipeDream and 2BW should make of a model, in one process: each batch's gradients are of weights that are late.

Within an execution of Keras's loop, batch b of stage s computes with the weights after max(0, b - late[s]) updates.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def linear_weights(
    weights: Sequence[Any], x: Any, y: Any, batch_rows: int, late: Sequence[int], learning_rate: float
) -> list[Any]:
    """By hand, in NumPy: x W0 W1 ... Wn, a matrix for each stage, mean squared error, SGD, all batches at once."""
    versions = [list(weights)]
    for number, begin in enumerate(range(0, len(x), batch_rows)):
        used = [versions[max(0, number - one)][stage] for stage, one in enumerate(late)]
        inputs = [x[begin : begin + batch_rows]]
        for matrix in used:
            inputs.append(inputs[-1] @ matrix)
        error = inputs.pop() - y[begin : begin + batch_rows]
        gradient = 2 * error / error.size
        newest = list(versions[-1])
        for stage in reversed(range(len(late))):
            newest[stage] = newest[stage] - learning_rate * inputs[stage].T @ gradient
            gradient = gradient @ used[stage].T
        versions.append(newest)
    return versions[-1]


def train_late(
    model: Any, late_of: dict[int, int], batches: Sequence[tuple[Any, Any]], *, epochs: int, together: int
) -> list[float]:
    """Trains a plain Keras model; the loss of each epoch.

    Args:
        model: Compiled.
        late_of: By the identity of a trained variable, how many updates it lacks.
        batches: (x, y) of each.
        epochs: Over the batches.
        together: Batches of an execution.
    """
    trained, losses = model.trainable_variables, []
    for _ in range(epochs):
        loss_sum = 0.0
        for number, (x, y) in enumerate(batches):
            if number % together == 0:
                versions = [[one.numpy() for one in trained]]
            at = number % together
            for place, variable in enumerate(trained):
                variable.assign(versions[max(0, at - late_of[id(variable)])][place])
            with tf.GradientTape() as tape:
                loss = model.compute_loss(x, y, model(x, training=True))
            gradients = tape.gradient(loss, [variable.value for variable in trained])
            for place, variable in enumerate(trained):
                variable.assign(versions[-1][place])
            model.optimizer.apply(gradients, trained)
            versions.append([one.numpy() for one in trained])
            loss_sum += float(loss) * len(x)
        losses.append(loss_sum / sum(len(x) for x, _ in batches))
    return losses


def digits_accuracy(model: Any, digits: Any, together: int) -> float:
    """Of a model of digits after 3 epochs."""
    x, y = digits["x_train"].reshape(-1, 784).astype("float32") / 255, digits["y_train"].astype("int64")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"], steps_per_execution=together)
    model.fit(x[:5120], y[:5120], batch_size=64, epochs=3, verbose=0)
    x_test, y_test = digits["x_test"].reshape(-1, 784).astype("float32") / 255, digits["y_test"].astype("int64")
    return float(model.evaluate(x_test[:1000], y_test[:1000], verbose=0, return_dict=True)["accuracy"])


def digits_model() -> Any:
    """Four layers, for up to four stages."""
    keras.utils.set_random_seed(0)
    hidden = [keras.layers.Dense(64, activation="relu") for _ in range(3)]
    return keras.Sequential([keras.Input((784,)), *hidden, keras.layers.Dense(10)])


def linear_model(num_stages: int) -> Any:
    """A matrix for each stage."""
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.Input((5,)), *(keras.layers.Dense(4, use_bias=False, name=f"w{at}") for at in range(num_stages))]
    )


def linear_data() -> tuple[Any, Any]:
    random = np.random.default_rng(1)
    return random.normal(size=(44, 5)), random.normal(size=(44, 4))
