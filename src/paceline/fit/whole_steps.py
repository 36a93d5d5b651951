"""What every rank computes for all rows, with one worker's numbers: an undivided step, or lines of a divided one.

The chief says so once for each step, with the reason: more workers do not make that part faster.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from paceline.comm.world import World
from paceline.fit.explanation import advice, messages_text, rows_of_all
from paceline.spmd.account import Account

_LOGGER = logging.getLogger("paceline")

_FEW_MESSAGES = 12
"""On a network of 0.2 ms they take less than 3 ms of a step."""
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
            self.say(f"its graph could not be divided ({words_of(fault)}); please report this")
            return None


def words_of(fault: Exception) -> str:
    """The type of an exception, the first line of its message, and its notes."""
    told = [*str(fault).strip().splitlines()[:1], *getattr(fault, "__notes__", ())]
    return f"{type(fault).__name__}: {' '.join(told)}"


def words_on_messages(account: Account, *, normalizes_by_own_rows: bool) -> str:
    """What to tell of a step that waits for many messages; "" of any other.

    Args:
        account: Of the divided step.
        normalizes_by_own_rows: Whether layers do so already, as `--batch-statistics local` says.
    """
    in_loops = sum(message.is_in_loop for message in account.messages)
    outside = len(account.messages) - in_loops
    if outside <= _FEW_MESSAGES and not in_loops:
        return ""
    told = f"waits for messages, each of which takes a network's latency: {messages_text(outside, in_loops)}"
    if normalizes_by_own_rows or outside <= _FEW_MESSAGES:
        return told
    return f"{told}. A layer of BatchNormalization needs about four, and none with --batch-statistics local"


def words_on_all_rows(
    account: Account, num_rows: int | None, shapes: Sequence[Sequence[int]], line_of: Callable[[Any], str]
) -> tuple[str, bool]:
    """The lines of the user's code that need the rows of all ranks, with what that costs; "" if none does.

    What Keras does by itself, as an optimizer with the rows of an embedding, is left out: nobody can change that.

    Args:
        account: Of the divided step.
        num_rows: Of the whole batch; None: it is not known, and neither are the costs.
        shapes: Of the step's flat inputs, as far as they are known.
        line_of: The user's line that has made an operation of TensorFlow's; "": it is none.

    Returns:
        The words, and whether the step gathers more than it saves.
    """
    costs = account.costs(num_rows or 1, shapes)
    lines = [one for one in rows_of_all(costs, line_of) if one.line]
    if not lines:
        return "", False
    if num_rows is None:
        told = [f"{one.line} ({', '.join(one.operations)})" for one in lines]
    else:
        told = [str(one) for one in lines]
    more = [f"and {len(told) - _MOST_LINES} more lines"] if len(told) > _MOST_LINES else []
    words = [
        *told[:_MOST_LINES],
        *more,
        f"messages a step: {messages_text(costs.num_messages, costs.num_messages_in_loops)}",
    ]
    advised = "" if num_rows is None else advice(costs.whole_share)
    return "; ".join(words) + (f". {advised}" if advised else ""), bool(advised)
