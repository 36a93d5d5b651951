"""How a process that no launcher started ends: with the right exit code, and without leaving its group waiting."""

import atexit
import os
import sys
from types import TracebackType

from paceline.comm.world import World
from paceline.errors import ConfigurationError, DesynchronizedError, StartTimeoutError
from paceline.observe.failure import describe


class Departure:
    """Watches the end of this process from before it joins a group.

    An uncaught exception is told to the group, and the process leaves at once: `MPI_Finalize` would wait for ranks that
    wait in a collective for this one. Paceline's own errors explain themselves: their message is printed without a
    traceback, and their exit code is used. A process that ends well meets the others and leaves in order.

    Args:
        world: The group, once joined; None before.
    """

    def __init__(self) -> None:
        self.world: World | None = None
        self._failed_with: int | None = None
        self._previous_hook = sys.excepthook

    def watch(self) -> None:
        """Begins to watch; once per process."""
        sys.excepthook = self._on_exception
        atexit.register(self._on_exit)

    def _on_exception(self, type_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, (ConfigurationError, StartTimeoutError, DesynchronizedError)):
            print(f"paceline: {error}", file=sys.stderr)  # the interpreter's own last words, in its place
        else:
            self._previous_hook(type_, error, trace)
        report = describe(error, None if self.world is None else self.world.fatal)
        self._failed_with = report.exit_code
        if self.world is not None:
            self.world.fail(report)

    def _on_exit(self) -> None:
        if self._failed_with is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._failed_with)
        if self.world is not None:
            self.world.finish()
