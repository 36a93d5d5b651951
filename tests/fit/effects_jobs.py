"""A step that prints, calls Python and writes summaries, trained with plain Keras's `fit`."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_calls: list[tuple[int, ...]] = []


def run_case(name: str, folder: str) -> dict[str, Any]:
    """What `fit` gives, and what the step has done besides.

    Args:
        name: `trained`; `for the chief`, with callbacks for the chief only; `raised`, with an exception in Python.
        folder: For summaries.
    """
    keras.utils.set_random_seed(5)
    keras.config.set_floatx("float64")
    _calls.clear()
    model = Effects(raises=name == "raised")
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    x = np.random.default_rng(1).normal(size=(17, 8))
    y = np.random.default_rng(2).normal(size=(17, 4))
    logs = keras.callbacks.TensorBoard(folder, update_freq=1, profile_batch=0, write_graph=False)
    if name == "for the chief":
        import paceline

        paceline.chief_only(logs)
    raised = ""
    try:
        losses = model.fit(x, y, batch_size=7, epochs=2, verbose=0, callbacks=[logs], shuffle=False).history["loss"]
        model.evaluate(x, y, batch_size=7, verbose=0)
    except tf.errors.UnknownError as error:
        losses, raised = [], error.message
    return {
        "numbers": [*losses, *(float(number) for weight in model.get_weights() for number in weight.reshape(-1))],
        "calls": list(_calls),
        "raised": raised,
    }


def summaries(folder: Path) -> list[tuple[str, float]]:
    """The scalars of the step in a folder of TensorBoard's, with their values."""
    return [
        (value.tag, float(tf.make_ndarray(value.tensor)))
        for path in sorted(folder.rglob("events.out.tfevents.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if "of_step" in value.tag
    ]


class Effects(keras.Model):
    def __init__(self, raises: bool) -> None:
        super().__init__()
        self._raises = raises
        self.first, self.second = keras.layers.Dense(6, "tanh"), keras.layers.Dense(4)

    def call(self, inputs: Any) -> Any:
        hidden = self.first(inputs)
        tf.print("printed rows:", tf.shape(hidden)[0])
        turned = tf.py_function(self._turned, [hidden], hidden.dtype)
        turned.set_shape(hidden.shape)
        tf.summary.scalar("of_step", tf.reduce_mean(turned))
        return self.second(turned)

    def _turned(self, hidden: Any) -> Any:
        """Each call computes something else, and has a gradient."""
        if self._raises and len(_calls) == 2:
            raise LookupError("no third call")
        _calls.append(tuple(hidden.shape))
        return hidden * (1.0 + 0.25 * tf.cos(tf.cast(len(_calls), hidden.dtype)))
