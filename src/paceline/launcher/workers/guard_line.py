"""The agent's connection to its guard process (``guard.py``)."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.cluster import environment
from paceline.rendezvous.guard_words import Appointed, Bye, Word
from paceline.wire.frames import line


class GuardLine:
    """What the agent tells its guard.

    Args:
        descriptor: Writing end of the guard's standard input.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.agent_id = os.urandom(8).hex()
        """What marks the processes that it ends."""

    def tell(self, word: Word) -> None:
        """Sends a word; a guard that was killed is no reason to stop the job."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, line(word))


@contextmanager
def guarded(job_id: str) -> Iterator[GuardLine]:
    """Starts the guard of a job; leaving without an error says that nothing of the job is left.

    After an error the guard is left to kill whatever there is.
    """
    variables = {name: value for name, value in os.environ.items() if name != environment.AGENT_ID}
    process = subprocess.Popen(
        # -P: without it, `-m` would let a `signal.py` in the user's folder replace the standard library's.
        [sys.executable, "-P", "-m", "paceline.launcher.workers.guard"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=variables,
        start_new_session=True,
    )
    assert process.stdin is not None
    guard = GuardLine(process.stdin.fileno())
    guard.tell(Appointed(job_id, guard.agent_id))
    try:
        yield guard
        guard.tell(Bye())
    finally:
        process.stdin.close()
        process.wait()
