"""What a process may come to use, and what is put in its place before: replacements in Keras, for example.

    seams: SERVERS.before(install)        the script: ParameterServerStrategy()  ─► SERVERS.begin() ─► install()

A process that never uses a thing never has its replacements.
"""

import threading
from collections.abc import Callable

from paceline.strategy.per_thread import PerThread


class FirstUse:
    """The first use of one thing in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while calls are made: another thread's use waits for them."""
        self._waiting: list[Callable[[], None]] = []
        self._has_begun = False

    def before(self, call: Callable[[], None]) -> None:
        """`call` is called once: before the first use, or now if there has been one."""
        with self._lock:
            self._waiting.append(call)
            if self._has_begun:
                self._call_all()

    def begin(self) -> None:
        """The thing is about to be used."""
        with self._lock:
            self._has_begun = True
            self._call_all()

    def _call_all(self) -> None:
        while self._waiting:
            self._waiting[0]()
            self._waiting.pop(0)  # not before it has been called: an interrupt would leave it out


SERVERS = FirstUse()
"""A `ParameterServerStrategy`."""
PIPELINES = FirstUse()
"""A `PipelineStrategy`."""
LOOPS = FirstUse()
"""A step of a loop of the script's own over several replicas."""

IN_TRAINER = PerThread(False)
"""Whether this thread takes or traces a trainer's step: then no loop of the script's own calls `strategy.run`."""
