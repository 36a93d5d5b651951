"""Waiting for other processes without standing in their way.

MPI's blocking calls spin. When there are more runnable processes than cores (more workers than cores, a container's
quota, anybody else on the machine), the one that spins takes the core from the one that it waits for: an all-reduce of
1 MB by 3 ranks on 2 cores takes 1.8 s instead of 4 ms. A wait that asks, and steps aside between questions, costs one
microsecond more where every rank has its own core, lets the threads that prepare the next batch run on it, and can be
interrupted with Ctrl-C.
"""

import os
import time
from collections.abc import Callable

_EAGER_QUESTIONS = 100
"""Asked back to back (about 20 microseconds): a peer that is just as fast is there by then."""
_YIELDING_QUESTIONS = 2_000
"""Asked with the core offered to others in between (about a millisecond)."""
_NAP_SECONDS = 50e-6
"""From then on: enough for other threads to have the interpreter, too; little beside what was waited already."""

_step_aside: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


def wait_until(is_done: Callable[[], bool]) -> None:
    """Returns once `is_done` answers true."""
    for _ in range(_EAGER_QUESTIONS):
        if is_done():
            return
    for _ in range(_YIELDING_QUESTIONS):
        if is_done():
            return
        _step_aside()
    while not is_done():
        time.sleep(_NAP_SECONDS)
