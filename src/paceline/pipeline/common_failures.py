"""What one rank raises while all ranks make their functions is raised on all: the script may catch it and go on.

A rank that left alone would be in its next collective while the others are still in this one.
"""

import contextlib
import json
from collections.abc import Iterator

import numpy as np

from paceline.comm.group import Group
from paceline.errors import ConfigurationError
from paceline.observe.frames import users_line_of


@contextlib.contextmanager
def raised_on_all(group: Group) -> Iterator[None]:
    """A block that each rank runs for itself. Collective, at its end: all ranks leave the block alike.

    Args:
        group: Every rank of it.

    Raises:
        ConfigurationError: another rank has refused what the block does; in its words.
        RuntimeError: another rank has raised something else. Each rank raises its own exception if it has one.
    """
    own: Exception | None = None
    try:
        yield
    except Exception as error:
        own = error
    for rank, told in enumerate(group.all_gather(np.frombuffer(_told(own), np.uint8))):
        if own is not None:
            raise own
        if told.size:
            is_refused, text = json.loads(told.tobytes())
            raise _raised_here(rank, text, is_refused=is_refused)


def _told(error: Exception | None) -> bytes:
    if error is None:
        return b""
    is_refused, line = isinstance(error, ConfigurationError), users_line_of(error.__traceback__)
    text = str(error) if is_refused else " ".join(f"{type(error).__name__}: {error}".split())
    return json.dumps([is_refused, text if is_refused or not line else f"{text} ({line})"]).encode()


def _raised_here(rank: int, text: str, *, is_refused: bool) -> Exception:
    if is_refused:
        return ConfigurationError(text)
    return RuntimeError(
        f"rank {rank} could not measure layers, or make the functions of its stage, so no rank takes the step. It "
        f"raised {text}, and its output has the traceback. [stage-failed]"
    )
