"""What every rank computes for all rows, with one worker's numbers: an undivided step, or lines of a divided one.

The chief says so once for each step, with the reason: more workers do not make that part faster.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from paceline.comm.world import World
from paceline.observe.frames import users_line_of_stack

_LOGGER = logging.getLogger("paceline")

_MOST_LINES = 4


class WholeStep:
    """The words about one step, or one loop.

    Args:
        name: Of the step, in the words.
        world: Whose chief speaks.
    """

    def __init__(self, name: str, world: World) -> None:
        self._name = name
        self._world = world
        self._has_spoken = False

    def say(self, why: str) -> None:
        """Every rank computes the whole step, and why; said once."""
        if self._world.is_chief and not self._has_spoken:
            _LOGGER.warning(
                "every worker computes all rows of %s, so more workers do not make it faster: %s [whole-steps]",
                self._name,
                why,
            )
        self._has_spoken = True

    def unless_divided(self, divide: Callable[[], Any]) -> Any:
        """What `divide` returns; None, which is said, if it raises: the ranks divide the same graph, so all fail alike.

        Raises:
            Exception: what `divide` raises, with `--verify strict`.
        """
        try:
            return divide()
        except Exception as fault:
            if self._world.verify == "strict":
                raise
            told = [*str(fault).strip().splitlines()[:1], *getattr(fault, "__notes__", ())]
            self.say(f"its graph could not be divided ({type(fault).__name__}: {' '.join(told)}); please report this")
            return None


def lines_on_all_rows(operations: Iterable[Any], *, within: str) -> str:
    """The lines of the user's code that need the rows of all ranks, with their operations; "" if none does.

    What Keras does by itself, as an optimizer with the rows of an embedding, is left out: nobody can change that.

    Args:
        operations: TensorFlow's, as traced, for which rows were gathered.
        within: The file whose frame stands around the step: what is above that frame has only called `fit`.
    """
    kinds: dict[str, dict[str, None]] = {}
    for one in operations:
        if line := users_line_of_stack(_inside(one.traceback or (), within)):
            kinds.setdefault(line, {})[one.type] = None
    told = [f"{line} ({', '.join(types)})" for line, types in kinds.items()]
    more = [f"and {len(told) - _MOST_LINES} more lines"] if len(told) > _MOST_LINES else []
    return "; ".join([*told[:_MOST_LINES], *more])


def _inside(frames: Iterable[Any], within: str) -> Sequence[Any]:
    frames = list(frames)
    around = [index for index, frame in enumerate(frames) if frame.filename == within]
    return frames[around[-1] + 1 :] if around else frames
