"""A step whose division is wrong on purpose, trained with plain Keras's `fit`; and steps that are to be verified."""

import contextlib
from collections.abc import Iterator
from typing import Any

FAULTS = ("sum is not summed", "rows are forgotten", "mean of own rows", "rule of the script")


def run_case(name: str, *options: str) -> dict[str, Any]:
    """The losses and weights after two epochs of batches of 7 rows.

    Args:
        name: A fault of the rules; `right`: none.
        options: `named`: the batch size is; `several`: two steps in an execution; `noise`: TensorFlow draws;
            `few`: a step that fails on few rows; `counted`: a layer writes a variable that nobody reads;
            `running`: a sum over the rows above; `flat`: gradients are rounding only;
            `again`: single batches of other sizes, too; `strict`, `off`: what
            `--verify` says.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    keras.utils.set_random_seed(5)
    keras.config.set_floatx("float64")
    middle = []
    if "noise" in options:
        middle.append(_layer(lambda x: x + 0.1 * tf.random.normal(tf.shape(x), dtype=x.dtype)))
    if "few" in options:
        middle.append(_layer(lambda x: x + tf.nn.top_k(tf.transpose(x), k=6).values[0, 0]))
    seen = tf.Variable(0.0)
    if "running" in options:  # a sum over the rows above
        middle.append(_layer(lambda x: x + 0.1 * tf.cumsum(x, axis=0)))
    if "flat" in options:
        middle.append(keras.layers.BatchNormalization())
    if "counted" in options:
        middle.append(_layer(lambda x: (seen.assign_add(1.0, read_value=False), x)[1]))
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6, "tanh"), *middle, keras.layers.Dense(4)])
    steps = 2 if "several" in options else 1
    adam = keras.optimizers.Adam(0.01)
    model.compile(adam, "mse", metrics=["mae"], steps_per_execution=steps, jit_compile=False)
    x = np.ones((28, 8)) if "flat" in options else np.random.default_rng(1).normal(size=(28, 8))
    y = np.random.default_rng(2).normal(size=(28, 4))
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(7, drop_remainder="named" in options)
    raised = ""
    losses: list[float] = []
    with _broken(name), _verified(*(set(options) & {"strict", "off"})):
        try:
            losses = model.fit(data, epochs=2, verbose=0).history["loss"]
            losses += model.evaluate(data, verbose=0)
            for rows in (5, 4, 6) if "again" in options else ():
                losses += model.train_on_batch(x[:rows], y[:rows])
        except RuntimeError as error:
            raised = str(error)
    return {
        "numbers": [
            *losses,
            float(seen),
            *(float(number) for weight in model.get_weights() for number in weight.reshape(-1)),
        ],
        "iterations": int(model.optimizer.iterations),
        "raised": raised,
    }


def _layer(function: Any) -> Any:
    import keras

    class Layer(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return function(x)

    return Layer()


@contextlib.contextmanager
def _verified(how: str = "auto") -> Iterator[None]:
    """What a job would do that was started with this `--verify`; nothing with plain Keras."""
    import sys

    if "paceline" not in sys.modules:
        yield
        return
    from paceline.comm.world import current_world

    world = current_world()
    before, world.verify = world.verify, how
    try:
        yield
    finally:
        world.verify = before


@contextlib.contextmanager
def _broken(fault: str) -> Iterator[None]:
    """While this lasts, what is divided is divided wrongly."""
    if fault == "right":
        yield
        return
    if fault == "rule of the script":
        import paceline
        from paceline.spmd.rules.rule import REGISTERED

        paceline.register_rule("Cumsum", "... , -> ...")
        try:
            yield
        finally:
            REGISTERED.clear()
        return
    import tensorflow as tf

    from paceline.strategy import step_messages

    class Broken(step_messages.StepMessages):
        def sum(self, addends: Any) -> Any:
            return [self._wrong(*pair) for pair in zip(addends, super().sum(addends), strict=True)]

        def _wrong(self, own: Any, both: Any) -> Any:
            if not both.dtype.is_floating:
                return both
            return {"sum is not summed": tf.identity(own), "rows are forgotten": both - own}.get(fault, both / 2)

    from paceline.fit import divided_steps

    before, divided_steps.StepMessages = divided_steps.StepMessages, Broken
    try:
        yield
    finally:
        divided_steps.StepMessages = before
