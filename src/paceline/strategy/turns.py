"""The order of collectives in TensorFlow's graphs.

TensorFlow runs operations that do not depend on each other in any order, `numpy_function`s and its own collectives
among them: two collectives of one graph would run in one order on rank 0 and in another on rank 1, and each would meet
the wrong peer. So each takes its turn at a *token*, a variable:

    read and write token ─► collective A ─► read and write token ─► collective B ─► …

TensorFlow's automatic control dependencies keep operations on one variable in program order, through nested functions,
conditionals and loops alike; a chain of control dependencies within one graph would end at its border.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.strategy.compat import ResourceVariable


class Turns:
    """The token of one process: whatever is built `in_turn` runs in the order in which it was built."""

    def __init__(self) -> None:
        self._token: Any = None

    def in_turn(self, build: Callable[[], list[Any]]) -> list[Any]:
        """The tensors that `build` returns, whose operations come after all that took their turn before.

        Args:
            build: Builds operations in the current graph; eagerly it just runs, in order by nature.
        """
        if tf.executing_eagerly():
            return build()
        with tf.control_dependencies([self._take()]):
            results = build()
        with tf.control_dependencies(results):
            self._take()
        return results

    def _take(self) -> Any:
        """Reads and writes the token, which orders everything around it."""
        if self._token is None:
            with tf.init_scope(), tf.device("/device:CPU:0"):
                self._token = ResourceVariable(0, trainable=False, dtype=tf.int64, name="paceline_turn")
        with tf.device("/device:CPU:0"):
            return self._token.assign_add(1, read_value=False)
