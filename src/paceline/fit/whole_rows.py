"""What of a divided step every rank computes on the rows of all ranks: pairs of rows, orders over a batch."""

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.observe.frames import users_line_of_stack

_MOST_LINES = 4


def lines_on_all_rows(operations: Iterable[Any], *, within: str) -> str:
    """The lines of the user's code that need the rows of all ranks, with their operations; "" if none does.

    What Keras does by itself, as an optimizer with the rows of an embedding, is left out: nobody can change that.

    Args:
        operations: TensorFlow's, as traced, which got gathered rows.
        within: The file whose frame stands around the step: what is above it has only called `fit`.
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
