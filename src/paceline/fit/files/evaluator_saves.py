"""An evaluator runs the workers' script, and what the script saves is theirs to write: a launched one saves none."""

import os

from paceline.cluster.evaluator_task import is_evaluator
from paceline.comm.world import current_world

_is_allowed = False


def allow_saves() -> None:
    """From now on this process saves what it is told to: its callbacks are an evaluator's own."""
    global _is_allowed
    _is_allowed = True


def saves_nothing() -> bool:
    """Whether models and checkpoints that are saved here are the workers'."""
    return not _is_allowed and current_world().launched and is_evaluator(os.environ)
