"""What is told of an exception that nobody caught."""

import traceback
from pathlib import Path

from paceline.errors import ConfigurationError, DesynchronizedError, StartTimeoutError, exit_code_of
from paceline.rendezvous.channel import Failed

_SELF_EXPLAINING = (ConfigurationError, StartTimeoutError, DesynchronizedError)
_BOOTSTRAP = Path(__file__).parents[1] / "bootstrap"
_EXIT_INTERRUPTED = 130


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
        return Failed(exception="interrupted", traceback="", exit_code=_EXIT_INTERRUPTED)
    if isinstance(cause, _SELF_EXPLAINING):
        return Failed(exception=str(cause), traceback="", exit_code=exit_code_of(cause))
    line = "".join(traceback.format_exception_only(cause)).strip()
    return Failed(exception=line, traceback=_from_script_on(error), exit_code=1)


def _from_script_on(error: BaseException) -> str:
    """The traceback without the frames that led to the script."""
    trace = error.__traceback__
    while trace is not None and _leads_to_script(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))


def _leads_to_script(filename: str) -> bool:
    return filename.startswith("<frozen runpy") or _BOOTSTRAP in Path(filename).parents
