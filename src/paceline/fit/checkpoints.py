"""The files of Keras's checkpoint callbacks: the chief writes them, and nobody goes on before they are whole.

All ranks hold the same model, and all would write it to the same path: on one host they tear each other's file.
"""

from collections.abc import Callable
from typing import Any

from paceline.fit.strategies import paceline_strategy_of

Function = Callable[..., Any]


def written_by_chief(keras_method: Function) -> Function:
    """A method of a callback that writes or removes files: on the chief only, then all ranks meet. Collective."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = paceline_strategy_of(self.model)
        if strategy is None or strategy.world.size == 1:
            return keras_method(self, *args, **kwargs)
        result = keras_method(self, *args, **kwargs) if strategy.world.rank == 0 else None
        strategy.world.communicator.barrier()
        return result

    return method
