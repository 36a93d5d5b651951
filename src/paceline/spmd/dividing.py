"""How this thread divides a step: what sizes and rules ask, however deep they are called."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Dividing(threading.local):
    num_rows: int | None = None
    """How many rows the whole batch has, if that is a number; see `rows_are`."""
    addends_stay = False
    """Whether addends stay addends wherever an operation is linear in them; see `addends_stay`."""


dividing = _Dividing()
"""To be read; what is below changes it."""


@contextmanager
def rows_are(number: int | None) -> Iterator[None]:
    """While this lasts, sizes that are made in this thread have this number in place of `rows`; None: they keep it."""
    before, dividing.num_rows = dividing.num_rows, number
    try:
        yield
    finally:
        dividing.num_rows = before


@contextmanager
def addends_stay() -> Iterator[None]:
    """While this lasts, addends stay addends in this thread wherever an operation is linear in them.

    Else they do so where they are no longer afterwards than before, which costs no bytes, and where nothing is rounded.
    """
    before, dividing.addends_stay = dividing.addends_stay, True
    try:
        yield
    finally:
        dividing.addends_stay = before
