"""What the agent is told of an exception that nobody caught."""

import traceback
from pathlib import Path

from paceline.comm.world import World
from paceline.errors import ConfigurationError, DesynchronizedError, StartTimeoutError, exit_code_of
from paceline.rendezvous.channel import Failed

_SELF_EXPLAINING = (ConfigurationError, StartTimeoutError, DesynchronizedError)
_BOOTSTRAP = Path(__file__).parent


def describe(error: BaseException, world: World) -> Failed:
    """The report on `error`: its line, its traceback from the user's script on, and the exit code.

    An error that ended a collective reaches the script only as TensorFlow's text; the world has kept the original.
    """
    cause = world.fatal if world.fatal is not None else error
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
        text = f"sys.exit({error.code!r})"
        return Failed(exception=text, traceback="", exit_code=code)
    line = "".join(traceback.format_exception_only(cause)).strip()
    if isinstance(cause, _SELF_EXPLAINING):
        return Failed(exception=line.split(": ", 1)[-1], traceback="", exit_code=exit_code_of(cause))
    return Failed(exception=line, traceback=_from_script_on(error), exit_code=1)


def _from_script_on(error: BaseException) -> str:
    """The traceback without the frames that led to the script."""
    trace = error.__traceback__
    while trace is not None and _BOOTSTRAP in Path(trace.tb_frame.f_code.co_filename).parents:
        trace = trace.tb_next
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith("<frozen runpy"):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
