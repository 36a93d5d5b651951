"""The strategy that a launched script gets when it names none."""

from paceline.comm.world import World
from paceline.strategy.base import SynchronousStrategy, local_device


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
