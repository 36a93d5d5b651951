"""The stacks of a worker that hangs: asked for by its agent, written by the interpreter without running any Python."""

import contextlib
import faulthandler
import sys

from paceline.cluster.signals import STACKS_SIGNAL


def write_stacks_when_asked() -> None:
    """From now on `STACKS_SIGNAL` writes the stacks of all threads to stderr, and no more happens."""
    with contextlib.suppress(AttributeError, ValueError, OSError):  # stderr is closed, or no file
        faulthandler.register(STACKS_SIGNAL, file=sys.stderr, all_threads=True, chain=False)
