"""What happens around a whole `fit`: one start for all ranks, and one voice."""

import inspect
import logging
from collections.abc import Callable
from typing import Any

from paceline.comm.world import current_world
from paceline.fit.strategies import paceline_strategy_of
from paceline.strategy.base import named_strategies

_LOGGER = logging.getLogger("paceline")

Function = Callable[..., Any]


def started_together(keras_fit: Function) -> Function:
    """Keras's `fit`, which shares the chief's values once, where the model is built. Collective."""

    signature = inspect.signature(keras_fit)

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = paceline_strategy_of(self)
        world = current_world()
        if strategy is None:
            if world.size > 1 and not world.solo_training_allowed and not named_strategies:
                raise RuntimeError(
                    f"this script names no strategy, and --no-drop-in keeps Paceline from giving it one: its "
                    f"{world.size} workers would train {world.size} models that never meet. Leave --no-drop-in out, or "
                    "build the model in the scope of a paceline.MultiWorkerMirroredStrategy()."
                )
            if world.size > 1 and world.rank == 0 and not world.solo_training_allowed:
                _LOGGER.warning(
                    "this model was built outside strategy.scope(): each of the %d workers trains a copy of its own "
                    "and they do not meet. Build and compile it inside `with strategy.scope():` to train it together.",
                    world.size,
                )
            with world.training_alone():
                return keras_fit(self, *args, **kwargs)
        arguments = signature.bind(self, *args, **kwargs).arguments
        object.__setattr__(self, "_paceline_epochs", [arguments.get("initial_epoch", 0), arguments.get("epochs", 1)])
        object.__setattr__(self, "_paceline_in_fit", True)
        object.__setattr__(self, "_paceline_shared", False)
        try:
            return keras_fit(self, *args, **kwargs)
        finally:
            object.__setattr__(self, "_paceline_in_fit", False)
            object.__setattr__(self, "_paceline_epochs", None)

    return fit


def quiet_on_followers(keras_method: Function, verbose_position: int) -> Function:
    """`fit`, `evaluate` or `predict` with a progress bar on the chief only, in a launched world (one terminal).

    Args:
        keras_method: The method.
        verbose_position: Index of `verbose` among its positional arguments, self not counted.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        world = current_world()
        if world.launched and world.rank > 0:
            if len(args) > verbose_position:
                args = (*args[:verbose_position], 0, *args[verbose_position + 1 :])
            else:
                kwargs["verbose"] = 0
        return keras_method(self, *args, **kwargs)

    return method
