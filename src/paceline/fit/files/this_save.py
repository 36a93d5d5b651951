"""What is saved here and now: by this process, and by this thread, which may be in the middle of it.

An evaluator runs the workers' script, and what the script saves is theirs to write: a launched one saves none.
"""

import os
import threading
from contextlib import AbstractContextManager

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


class _ThisSave(threading.local):
    is_writer = False
    """Whether this thread has claimed a model's files, or a whole callback's: what it saves is part of them."""
    turn: AbstractContextManager[bool] | None = None
    """Where all ranks write: what the next file waits for, when it is whole, to know whether it is put in its place."""
    names: tuple[str, str] | None = None
    """Where an export goes to, and the name that the user knows it by."""
    keeps_books_only = False
    """Whether another rank has written a checkpoint, so that this one leaves the directory alone."""


this_save = _ThisSave()
"""The one that this thread is in the middle of, if any."""
