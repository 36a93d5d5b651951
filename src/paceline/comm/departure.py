"""How a process that no launcher started ends: with the right exit code, and without leaving its group waiting."""

import atexit
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import NoReturn

from paceline.comm.world import World
from paceline.errors import ConfigurationError, DesynchronizedError, StartError
from paceline.leaving import flush_open_files, leave_script, run_exit_handlers
from paceline.observe.failure import advise, describe, write_stacks_of_crash

_MOST_SECONDS_TO_END = 10.0


class Departure:
    """Watches the end of this process from before it joins a group.

    An uncaught exception is told to the group, and the process leaves at once: `MPI_Finalize` would wait for ranks that
    wait in a collective for this one. Paceline's own errors explain themselves: their message is printed without a
    traceback, and their exit code is used. A process that ends well meets the others and leaves in order.

    A process that the script forks inherits all of this, but is no rank: it ends as if nobody watched.

    Args:
        world: The group, once joined; None before.
    """

    def __init__(self) -> None:
        self.world: World | None = None
        self.at_end: Callable[[int], None] | None = None
        """Called with the exit code where others end with this process, though it is in no group with them."""
        self.reason_of: Callable[[BaseException], str] = lambda _: ""
        """What an exception that ends this process comes from, in a sentence for the user; empty: nothing more."""
        self._failed_with: int | None = None
        self._previous_hook = sys.excepthook
        self._pid = os.getpid()

    def watch(self) -> None:
        """Begins to watch this process; once per process."""
        self._pid = os.getpid()
        write_stacks_of_crash()
        sys.excepthook = self._on_exception
        sys.exit = self._exit  # an exception hook is not told of SystemExit
        atexit.register(self._on_exit)

    def _exit(self, status: "str | int | None" = None, /) -> NoReturn:
        """`sys.exit`, which with a status other than 0 is a failure that the group must learn of."""
        leaving = SystemExit(status)
        ends_the_process = threading.current_thread() is threading.main_thread() and not self._is_forked()
        if status not in (None, 0) and ends_the_process:
            self._fail(leaving)
        raise leaving

    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def _note_failure(self, exit_code: int) -> None:
        self._failed_with = exit_code
        if threading.main_thread().is_alive():  # dead: exit handlers run already, and one added now would not
            # From now on it runs first: what it runs in turn would run twice, if some of it had run before.
            atexit.unregister(self._on_exit)
            atexit.register(self._on_exit)

    def _fail(self, error: BaseException) -> None:
        """Tells those who wait for this process, if there are any."""
        world = self.world
        if world is None:
            if self.at_end is not None:
                self._note_failure(describe(error, None).exit_code)
            return
        report = describe(error, world.fatal)
        self._note_failure(report.exit_code)
        world.fail(report)
        if world.abandon is not None:
            # The others wait for this rank: a thread or an exit handler of the script must not hold it up for long.
            overdue = threading.Timer(_MOST_SECONDS_TO_END, world.abandon, [report.exit_code])
            overdue.daemon = True
            overdue.start()

    def _on_exception(self, type_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self._is_forked() or sys.flags.interactive or hasattr(sys, "ps1"):  # at a prompt it ends nothing
            self._previous_hook(type_, error, trace)
            return
        if isinstance(error, (ConfigurationError, StartError, DesynchronizedError)):
            print(f"paceline: {error}", file=sys.stderr)  # the interpreter's own last words, in its place
            self._note_failure(describe(error, None).exit_code)
        else:
            self._tell(type_, error, trace)
        self._fail(error)

    def _tell(self, type_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """The traceback, and last of all whose exception it is."""
        if self.world is None or isinstance(error, KeyboardInterrupt):
            self._previous_hook(type_, error, trace)
            if reason := self.reason_of(error):
                print(f"paceline: {reason}", file=sys.stderr)
            return
        advise(error, self.world.size)
        report = describe(error, self.world.fatal)
        if self._previous_hook is sys.__excepthook__:
            print(report.traceback, end="", file=sys.stderr)
        else:
            self._previous_hook(type_, error, trace)
        host = socket.gethostname()
        print(f"paceline: rank {self.world.rank} ({host}): {report.exception}", file=sys.stderr)

    def _on_exit(self) -> None:
        if self._is_forked():
            return
        if self.at_end is not None:
            self.at_end(self._failed_with or 0)
        if self._failed_with is not None:
            atexit.unregister(self._on_exit)
            run_exit_handlers()  # those of the script
            flush_open_files()  # an abandoned world may end this process, too
            if self.world is not None and self.world.abandon is not None:
                self.world.abandon(self._failed_with)
            leave_script(self._failed_with)
        if self.world is not None:
            self.world.finish()


def own_departure() -> Departure:
    """That of this process, which no launcher started. Watches its end from the first call on, so that what Paceline
    refuses is one sentence and an exit code of its own.
    """
    return _departure_of(os.getpid())


@cache
def _departure_of(pid: int) -> Departure:
    """One for each process: a fork of this one may join a group of its own."""
    del pid
    departure = Departure()
    departure.watch()
    return departure
