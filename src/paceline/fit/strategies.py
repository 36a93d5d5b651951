"""The strategy under which a model trains; a script without a strategy gets one."""

import logging
import os
from collections.abc import Callable
from typing import Any

from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.cluster.server_cluster import is_chief_of_servers
from paceline.comm.world import World, current_world
from paceline.strategy.base import SynchronousStrategy, local_device, named_strategies

_LOGGER = logging.getLogger("paceline")

Function = Callable[..., Any]


class DropInStrategy(SynchronousStrategy):
    """Spans the launched world for models that were made in no scope.

    New variables are not broadcast one by one: a plain script may well make some on one rank only. `fit` starts from
    the chief's values in any case.

    Args:
        world: The launched world.
    """

    named_by_script = False

    def __init__(self, world: World) -> None:
        super().__init__(world, local_device(world), broadcast_new_variables=False)


_drop_in: DropInStrategy | None = None


def is_made_in_no_scope(model: Any) -> bool:
    """Whether the script has put `model` into no strategy's scope, also if it got a strategy by itself."""
    strategy = model._distribute_strategy
    return strategy is None or isinstance(strategy, DropInStrategy)


def initialised(keras_init: Function) -> Function:
    """Keras's `TensorFlowTrainer.__init__`, which remembers the strategy in whose scope the model is made.

    A model made in no scope, in a launched world whose script has named no strategy, gets one over the whole world.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        keras_init(self, *args, **kwargs)
        if self._distribute_strategy is None:
            self._distribute_strategy = drop_in_strategy()

    return __init__


def drop_in_strategy() -> SynchronousStrategy | None:
    """The one drop-in strategy of this process, made when the first model needs it; None where there is to be none."""
    global _drop_in
    world = current_world()
    wanted = read_variables(JobOptions, os.environ, "drop_in").drop_in
    if named_strategies or not world.launched or not wanted:
        return None
    if is_chief_of_servers(world.place):  # a model that only computes, on data for example, is made before the strategy
        return None
    if _drop_in is None:
        _drop_in = DropInStrategy(world)
        if world.is_chief and world.data.size > 1:
            _LOGGER.info("the script names no strategy: its Keras models train on all %d workers", world.data.size)
    return _drop_in
