"""Who calls `strategy.run`: a trainer, whose step is divided as a whole, or a loop of the script's own (`LOOPS`)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Here(threading.local):
    in_trainer: bool = False
    """Whether this thread takes or traces a step of a trainer."""


_here = _Here()


@contextmanager
def trainers_step() -> Iterator[None]:
    """While this lasts, `strategy.run` of this thread is called by a trainer."""
    before, _here.in_trainer = _here.in_trainer, True
    try:
        yield
    finally:
        _here.in_trainer = before


def is_trainers_step() -> bool:
    """Whether the step that this thread takes or traces is a trainer's."""
    return _here.in_trainer
