"""Around a whole call of `fit`: all ranks start together, and one rank prints Keras's messages."""

import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

from paceline.comm.world import World, current_world
from paceline.fit import own_loops
from paceline.fit.strategies import other_strategy_of, paceline_strategy_of
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
            if world.size > 1 and not world.solo_training_allowed:
                _refuse_or_warn(other_strategy_of(self), world)
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


def _refuse_or_warn(other_strategy: str | None, world: World) -> None:
    """What a `fit` under no strategy of Paceline's is told, in a world of several.

    Args:
        other_strategy: The class of the strategy that the model was built under, if any.
        world: This process's.

    Raises:
        RuntimeError: nothing else in the script trains on all workers.
    """
    if other_strategy is not None:
        fault = (
            f"this model was built under {other_strategy}, which Paceline does not replace: its {world.size} workers "
            f"would train {world.size} models that are never synchronized. Build it in the scope of a "
            "paceline.MultiWorkerMirroredStrategy(), or of no strategy, or start one worker. [no-strategy]"
        )
    elif not named_strategies:
        fault = (
            f"this script names no strategy, and --no-drop-in keeps Paceline from giving it one: its {world.size} "
            f"workers would train {world.size} models that are never synchronized. Leave --no-drop-in out, or build "
            "the model in "
            "the scope of a paceline.MultiWorkerMirroredStrategy(). [no-strategy]"
        )
    else:
        fault = (
            f"this model was built outside strategy.scope(): each of the {world.size} workers trains a copy of its "
            "own, and the copies are never synchronized. Build and compile it inside `with strategy.scope():` to "
            "train it together. "
            "[no-strategy]"
        )
    if not named_strategies:
        raise RuntimeError(fault)
    if world.is_chief:
        _LOGGER.warning("%s", fault)


class _Here(threading.local):
    """What this thread is in the middle of."""

    is_silent = False
    """A method of Keras's whose words are the chief's."""


_here = _Here()


def told_by_chief(keras_method: Function) -> Function:
    """`fit`, `evaluate` or `predict`, whose messages appear once, in a launched world (one terminal).

    Callbacks get the same logs on every rank, so all of them say the same ("Epoch 2: early stopping").
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        world = current_world()
        before, _here.is_silent = _here.is_silent, world.launched and not world.is_chief
        try:
            with own_loops.in_trainer():
                return keras_method(self, *args, **kwargs)
        finally:
            _here.is_silent = before

    return method


def unless_silent(keras_print: Function) -> Function:
    """Keras's `print_msg`, through which its callbacks speak."""

    def print_msg(*args: Any, **kwargs: Any) -> Any:
        return None if _here.is_silent else keras_print(*args, **kwargs)

    return print_msg


def summary_by_chief(keras_summary: Function) -> Function:
    """`Model.summary`, printed once in a launched world; a `print_fn` of the script's own is called on every rank."""
    signature = inspect.signature(keras_summary)

    def summary(self: Any, *args: Any, **kwargs: Any) -> Any:
        world = current_world()
        if world.launched and not world.is_chief and "print_fn" not in signature.bind(self, *args, **kwargs).arguments:
            return None
        return keras_summary(self, *args, **kwargs)

    return summary


def quiet_on_followers(keras_method: Function, verbose_position: int) -> Function:
    """`fit`, `evaluate` or `predict` with a progress bar on the chief only, in a launched world (one terminal).

    Args:
        keras_method: The method.
        verbose_position: Index of `verbose` among its positional arguments, self not counted.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        world = current_world()
        if world.launched and not world.is_chief:
            if len(args) > verbose_position:
                args = (*args[:verbose_position], 0, *args[verbose_position + 1 :])
            else:
                kwargs["verbose"] = 0
        return keras_method(self, *args, **kwargs)

    return method
