"""The random generators of the process: Python's, NumPy's, TensorFlow's. Keras's own is a variable.

With them go the numbers of epochs from which the orders of sources by index follow (`data/indexed/readings.py`).

TensorFlow's random operations in a step have a state that cannot be read or restored: a warning says so.
"""

import logging
import random
import re
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.data.indexed import readings
from paceline.data.order import seeds
from paceline.strategy import compat
from paceline.strategy.operation_seeds import eager_seeds, job_seed, use_job_seed

_LOGGER = logging.getLogger("paceline")

_DRAWS = re.compile(
    r"Random(Uniform|UniformInt|StandardNormal|Gamma|Poisson|PoissonV2|Shuffle)$|TruncatedNormal|Multinomial"
)
"""Types of operations. A `tf.random.Generator` has others, and a variable for its state; Keras's have none."""


def capture_generators() -> dict[str, Any]:
    """The state of all of them, as a value for `object_state.encode`. Draws no number."""
    made = compat.stateful_random_ops.global_generator
    eager = eager_seeds()
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "numpy_generators": seeds.num_default_generators(),
        "next_epochs": readings.next_epochs(),
        "tensorflow_seed": compat.global_seed(),
        "tensorflow_job_seed": job_seed(),
        "tensorflow_eager": None if eager is None else eager.getstate(),
        "tensorflow_generator": None if made is None else made.state.numpy(),
    }


def tensorflow_is_seeded() -> bool:
    """Whether a run with the same seed would draw the same numbers."""
    return compat.global_seed() is not None or job_seed() is not None


def was_seeded_otherwise(state: dict[str, Any]) -> bool:
    """Whether TensorFlow has another seed than when `state` was captured: data made so far are shuffled otherwise."""
    return bool(
        state["tensorflow_seed"] != compat.global_seed()
        or (state["tensorflow_seed"] is None and state["tensorflow_job_seed"] != job_seed())
    )


def drawn_from(before: dict[str, Any]) -> list[str]:
    """Those that everybody shares, Python's and NumPy's, of which numbers have been drawn since `before`."""
    is_drawn_from = {
        "python": random.getstate() != before["python"],
        "numpy": not np.array_equal(_numbers(np.random.get_state(legacy=False)), _numbers(before["numpy"])),
    }
    return [name for name, is_drawn in is_drawn_from.items() if is_drawn]


def _numbers(numpy_state: Any) -> Any:
    state = numpy_state["state"]
    return np.append(state["key"], [state["pos"], numpy_state["has_gauss"]])


def restore_generators(state: dict[str, Any], left_out: Collection[str] = ()) -> None:
    """Puts them where they were; Python's and NumPy's not if they are in `left_out`."""
    if state["tensorflow_job_seed"] != job_seed():
        use_job_seed(state["tensorflow_job_seed"])
    if state["tensorflow_seed"] != compat.global_seed():
        tf.random.set_seed(state["tensorflow_seed"])
    if "python" not in left_out:
        random.setstate(state["python"])
    if "numpy" not in left_out:
        np.random.set_state(state["numpy"])
    seeds.set_num_default_generators(state["numpy_generators"])
    readings.set_next_epochs(state.get("next_epochs", []))  # older snapshots have none
    eager = eager_seeds()
    if state["tensorflow_eager"] is not None and eager is not None:
        eager.setstate(state["tensorflow_eager"])
    if state["tensorflow_generator"] is not None:
        generator = tf.random.get_global_generator()
        if generator.state.shape == state["tensorflow_generator"].shape:
            generator.state.assign(state["tensorflow_generator"])


def unrestorable_draws(graph: Any) -> list[str]:
    """The types of such operations in the graph of a step."""
    return sorted({operation.type for operation in graph.get_operations() if _DRAWS.match(operation.type)})


_said: set[str] = set()


def warn_of_unrestorable_draws(graph: Any, *, is_chief: bool) -> None:
    """Says so, once, if a run that goes on from a snapshot will draw other numbers in this step."""
    types = [name for name in unrestorable_draws(graph) if name not in _said]
    _said.update(types)
    if types and is_chief:
        _LOGGER.warning(
            "the step uses random operations of TensorFlow (%s) whose state a snapshot cannot store: after a "
            "restart their sequence starts again, so the weights are not bit for bit those of a run without a "
            "restart. Use keras.random with a keras.random.SeedGenerator in an attribute of the model, or a "
            "tf.random.Generator: their state is restored.",
            ", ".join(types),
        )
