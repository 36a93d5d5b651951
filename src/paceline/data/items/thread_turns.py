"""Shorter turns of threads, while a thread of this process makes items and others take steps.

A thread of Python that waits for the interpreter gets it after 5 ms, if the one that has it does not wait for anything
itself. A step waits for the interpreter several times (callbacks, the collectives of a graph). So a `__getitem__` that
computes in Python would hold each step up by 20 ms and more, and those of other ranks with it, one rank after another.
"""

import sys
import threading

_SECONDS = 0.5e-3
"""A turn more costs some microseconds: below 2 %."""

_lock = threading.Lock()


class _Turns:
    """Of this process."""

    num_users = 0
    seconds_before = 0.0


_turns = _Turns()


class ShortTurns:
    """From `begin` to `end` of any such object, threads take short turns."""

    def __init__(self) -> None:
        self._has_begun = False

    def begin(self) -> None:
        """Without effect if it has begun."""
        with _lock:
            if self._has_begun:
                return
            self._has_begun = True
            _turns.num_users += 1
            if _turns.num_users == 1:
                _turns.seconds_before = sys.getswitchinterval()
                sys.setswitchinterval(min(_turns.seconds_before, _SECONDS))

    def end(self) -> None:
        """Without effect if it has not begun."""
        with _lock:
            if not self._has_begun:
                return
            self._has_begun = False
            _turns.num_users -= 1
            if _turns.num_users == 0:
                sys.setswitchinterval(_turns.seconds_before)
