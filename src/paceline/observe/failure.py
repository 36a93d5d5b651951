"""What is told of an exception that nobody caught, and of a process that crashes or hangs; Paceline's own log."""

import contextlib
import errno
import faulthandler
import logging
import os
import sys
import traceback
from pathlib import Path

from paceline.cluster import environment
from paceline.cluster.launched import STACKS_SIGNAL
from paceline.errors import (
    EXIT_INTERRUPTED,
    ConfigurationError,
    DesynchronizedError,
    StartError,
    exit_code_of,
)
from paceline.observe.frames import hides_between, is_between, users_line_of
from paceline.observe.graph_errors import cause_in
from paceline.rendezvous.channel import Failed

_SELF_EXPLAINING = (ConfigurationError, StartError, DesynchronizedError)
_BOOTSTRAP = Path(__file__).parents[1] / "bootstrap"


def describe(error: BaseException, kept: BaseException | None) -> Failed:
    """The report on `error`: its line, its traceback from the user's script on, and the exit code.

    Args:
        error: As it reached the top of the script.
        kept: The error that ended a collective, if one did: it reaches the script only as TensorFlow's text.
    """
    cause = kept if kept is not None else error
    if isinstance(error, SystemExit):
        # As the shell sees it: sys.exit(-1) is 255; and a code that it would see as 0 is a failure all the same.
        code = (error.code & 0xFF) or 1 if isinstance(error.code, int) else 1
        return Failed(exception=f"sys.exit({error.code!r})", traceback="", exit_code=code)
    if isinstance(error, KeyboardInterrupt):
        return Failed(exception="interrupted", traceback="", exit_code=EXIT_INTERRUPTED)
    if isinstance(cause, _SELF_EXPLAINING):
        return Failed(exception=str(cause), traceback="", exit_code=exit_code_of(cause))
    line = cause_in("".join(_without_notes(cause).format_exception_only()).strip())
    return Failed(exception=line, traceback=_users_traceback(error), exit_code=1)


def _without_notes(error: BaseException) -> traceback.TracebackException:
    told = traceback.TracebackException(type(error), error, None)
    told.__notes__ = []
    return told


def _users_traceback(error: BaseException) -> str:
    """The traceback without the frames that led to the script, and without those that Keras and Paceline hide."""
    trace = error.__traceback__
    while trace is not None and _leads_to_script(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    told = traceback.TracebackException(type(error), error, trace or error.__traceback__)
    if hides_between():
        _hide(told)
    return "".join(told.format())


def _hide(told: traceback.TracebackException) -> None:
    """Takes the frames between away, in the errors that led to this one as well; the last one stays if all are such."""
    users = [frame for frame in told.stack if not is_between(frame.filename)]
    told.stack = traceback.StackSummary.from_list(users or told.stack[-1:])
    for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if other is not None:
            _hide(other)


def _leads_to_script(filename: str) -> bool:
    return filename.startswith("<frozen runpy") or _BOOTSTRAP in Path(filename).parents


_SHARED_FILE_ERRNOS = {errno.EEXIST, errno.ENOTEMPTY, errno.EBUSY, errno.ETXTBSY, errno.ESTALE}
"""Of a call on a file or folder that something else has made, filled, removed or still uses."""
_SQLITE_BUSY, _SQLITE_LOCKED = 5, 6


def advise(error: BaseException, num_ranks: int, *, has_keyboard: bool = False) -> None:
    """Adds a note to an `error` that nobody caught, if it has to do with there being several ranks.

    Args:
        error: As it reached the top of the script.
        num_ranks: The world's size.
        has_keyboard: Whether this rank has it.
    """
    if num_ranks == 1:
        return
    if type(error).__name__ == "BdbQuit" and not has_keyboard:  # `pdb.set_trace()` at the end of an empty input
        error.add_note(f"paceline: {no_keyboard(num_ranks)}")
    elif _is_raced(error):
        line = users_line_of(error.__traceback__)
        error.add_note(
            f"paceline: every worker runs this line{f' ({line})' if line else ''}. If only some workers fail "
            "here, another worker was creating, changing or removing the same file at the same time. Let one "
            "worker do this first: put the line in a function under @paceline.once_per_host, or in `with "
            "paceline.once_per_host() as first:` under `if first:`. [every-worker-runs-this]"
        )


def no_keyboard(num_ranks: int) -> str:
    """What to do instead of asking for the keyboard."""
    return (
        f"input(), breakpoint() and pdb need the keyboard, and with {num_ranks} workers no worker has it. To use "
        "them, give it to one: `paceline run --debug-rank 0 ...`, or run the script with one worker: `paceline run "
        "--workers 1 ...` [no-keyboard]"
    )


def _is_raced(error: BaseException) -> bool:
    """Whether the error itself shows that something else works on the same file: another worker, in all likelihood.

    A file that was missing and is there by now has been made in between. One that is still missing may be a wrong name.
    """
    if isinstance(error, FileNotFoundError):
        return any(_exists(name) for name in (error.filename, error.filename2))
    if isinstance(error, OSError):
        return error.errno in _SHARED_FILE_ERRNOS
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (_SQLITE_BUSY, _SQLITE_LOCKED)


def _exists(name: object) -> bool:
    return isinstance(name, str | bytes | os.PathLike) and os.path.lexists(name)  # bytes, too


def write_stacks_of_crash() -> None:
    """From now on a crash (SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL) writes the stacks of all threads and then ends
    the process, as it always does. What the user has enabled already stays.
    """
    if not faulthandler.is_enabled():
        with contextlib.suppress(AttributeError, RuntimeError, ValueError, OSError):  # stderr is closed, or no file
            faulthandler.enable(file=sys.stderr, all_threads=True)


def write_stacks_when_asked() -> None:
    """From now on `STACKS_SIGNAL` writes the stacks of all threads to stderr, and no more happens."""
    with contextlib.suppress(AttributeError, RuntimeError, ValueError, OSError):
        faulthandler.register(STACKS_SIGNAL, file=sys.stderr, all_threads=True, chain=False)


def log_with_rank(rank: int, size: int) -> None:
    """Sends the logger `paceline` to stderr as ``paceline: message``; by hand, in a world of several, with the rank.

    Under `paceline run` the launcher prefixes every line with the rank already. An application that has configured
    the logger itself keeps its configuration.
    """
    logger = logging.getLogger("paceline")
    if logger.handlers:
        return
    launched = environment.RANK in os.environ
    prefix = "paceline: " if launched or size == 1 else f"paceline [rank {rank}]: "
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{prefix}%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
