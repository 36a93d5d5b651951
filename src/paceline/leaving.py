"""How a process of Paceline ends before Python would end it: the only place of ``os._exit``.

Python frees every object first, one by one: a tenth of the time of a short job, and TensorFlow's and MPI's destructors
take seconds, or crash. What it does besides must then be done here, and what is left out depends on who ends:

    leave            in order, as the launcher does: exit handlers, output       nothing that a user wrote is lost
    leave_script     the same without exit handlers, for who has run them, or must not: files that the script left open
    exit_now         at once: a thread of a process that cannot be reached otherwise, a fork that owes nothing
"""

import atexit
import contextlib
import gc
import io
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Ends this process with `code`, after its exit handlers and with all output written. No thread may have anything
    left to do.
    """
    run_exit_handlers()
    flush_output()
    os._exit(code)


def leave_script(code: int) -> NoReturn:
    """Ends a process that has run a script with `code`; what the script has written to open files is on disk."""
    flush_open_files()
    os._exit(code)


def exit_now(code: int) -> NoReturn:
    """Ends this process with `code`, from any thread. Nothing is written, nobody is told."""
    os._exit(code)


def run_exit_handlers() -> None:
    """Runs what was registered with `atexit`, the last first, as Python would at its end; none of them runs again."""
    atexit._run_exitfuncs()


def flush_output() -> None:
    """Writes out what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or its reader is gone
            stream.flush()


def flush_open_files() -> None:
    """Writes out the buffers of all files that are still open in this process."""
    for candidate in gc.get_objects():
        # By type: asking an arbitrary object for its class can run its code.
        if issubclass(type(candidate), io.IOBase):
            with contextlib.suppress(Exception):  # closed, not writable, or its reader is gone
                candidate.flush()
