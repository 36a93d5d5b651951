"""A layer with which one step never ends, while its worker lives: it opens a pipe to which nobody writes."""

import os
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

ENDLESS = 1e9
"""A batch with that number blocks its step, if the trap is set."""


class Trap:
    """Blocks one step.

    Args:
        folder: Where its files are.
    """

    def __init__(self, folder: Path) -> None:
        self.bait, self.entered, self.pipe = (str(folder / name) for name in ("bait", "entered", "pipe"))
        Path(self.bait).write_text("set")
        os.mkfifo(self.pipe)

    def has_caught_one(self) -> bool:
        """Whether a step blocks; from then on no other does."""
        if Path(self.entered).exists():
            Path(self.bait).write_text("")
            return True
        return False

    def release(self) -> None:
        """Lets the step go on."""
        os.close(os.open(self.pipe, os.O_WRONLY))


class Blocking(keras.layers.Layer):
    """Gives what it gets.

    Args:
        trap: None: it never blocks.
    """

    def __init__(self, trap: Trap | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.trap = trap

    def call(self, x: Any) -> Any:
        if self.trap is None:
            return x
        blocks = tf.reduce_max(x) >= ENDLESS
        # Of an argument: grappler would read a file of a constant name while it compiles.
        bait, entered, pipe = (
            tf.where(blocks, path, "") for path in (self.trap.bait, self.trap.entered, self.trap.pipe)
        )

        def block() -> Any:
            with tf.control_dependencies([tf.io.write_file(entered, "")]):
                return tf.strings.length(tf.io.read_file(pipe))

        def look() -> Any:
            return tf.cond(tf.strings.length(tf.io.read_file(bait)) > 0, block, lambda: 0)

        return x + tf.cast(tf.cond(blocks, look, lambda: 0), x.dtype)
