"""A `fit` under no strategy of Paceline's, in a world of several: each worker would train a model of its own."""

import logging
from typing import Any

from paceline.comm.world import current_world
from paceline.strategy.base import named_strategies

_LOGGER = logging.getLogger("paceline")


def refuse_training_apart(strategy: Any) -> None:
    """Refuses such a `fit`, or warns of it.

    Args:
        strategy: That the model was built under, if any.

    Raises:
        RuntimeError: nothing else in the script trains on all workers.
    """
    world = current_world()
    if world.size == 1 or world.solo_training_allowed:
        return
    if strategy is not None:
        fault = (
            f"this model was built under {type(strategy).__name__}, which Paceline does not replace: its {world.size} "
            f"workers would train {world.size} models that are never synchronized. Build it in the scope of a "
            "paceline.MultiWorkerMirroredStrategy(), or of no strategy, or start one worker. [no-strategy]"
        )
    elif not named_strategies:
        fault = (
            f"this script names no strategy, and --no-drop-in keeps Paceline from giving it one: its {world.size} "
            f"workers would train {world.size} models that are never synchronized. Leave --no-drop-in out, or build "
            "the model in the scope of a paceline.MultiWorkerMirroredStrategy(). [no-strategy]"
        )
    else:
        fault = (
            f"this model was built outside strategy.scope(): each of the {world.size} workers trains a copy of its "
            "own, and the copies are never synchronized. Build and compile it inside `with strategy.scope():` to "
            "train it together. [no-strategy]"
        )
    if not named_strategies:
        raise RuntimeError(fault)
    if world.is_chief:
        _LOGGER.warning("%s", fault)
