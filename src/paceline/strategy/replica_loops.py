"""Who calls `strategy.run`: a trainer, whose step is divided as a whole, or a loop of the script's own.

What such loops need of their process (patches of Keras, functions that are built into the step) is put in its place
before the first step of the first of them. A process that only calls `fit` never needs it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Here(threading.local):
    in_trainer: bool = False
    """Whether this thread takes or traces a step of a trainer."""


_here = _Here()
_lock = threading.Lock()
"""Held while calls are made: a step of another thread waits for them."""
_waiting: list[Callable[[], None]] = []
_has_begun = False


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


def before_first_loop(call: Callable[[], None]) -> None:
    """`call` is called once: before the first step of a loop of the script's own, or now if there has been one."""
    with _lock:
        _waiting.append(call)
        if _has_begun:
            _call_all()


def begin_loop() -> None:
    """A loop of the script's own is about to take a step over several replicas."""
    global _has_begun
    with _lock:
        _has_begun = True
        _call_all()


def _call_all() -> None:
    while _waiting:
        _waiting[0]()
        _waiting.pop(0)  # not before it has been called: an interrupt would leave it out
