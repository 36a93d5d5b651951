"""What a user is told of a step that has failed on a worker: what happened, and the user's own lines.

TensorFlow tells all frames of the tracing, twice or more, with those of its threads, and the whole message again as the
worker has sent it.
"""

import linecache
import re
from collections.abc import Callable

import tensorflow as tf

from paceline.observe.frames import is_users

_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')
_NOISE = re.compile(
    r"Graph execution error|Detected at node|Stack trace for op definition|\[\[\{\{|\[\[[\w./-]+/_\d+\]\]"
    r"|\d+ root error\(s\) found|\d+ successful operations|\d+ derived errors ignored"
)
_MARKS = re.compile(r"(\(\d+\) [A-Z_]+: +)?(\{\{function_node [^}]*\}\} *)?")
"""What stands before each of several errors, and before that of an operation in a function."""

_FROM_WORKER = "Additional GRPC error information"


def told_in_short(fault: BaseException, worker: int) -> BaseException:
    """An error of a TensorFlow operation with a short message, of the same class; any other exception itself.

    Args:
        fault: What the step has raised.
        worker: The index of the worker on which it ran.
    """
    if not isinstance(fault, tf.errors.OpError):
        return fault
    message = f"a step failed on worker {worker}: {shortened(fault.message, is_users)}"
    told: BaseException = type(fault)(None, None, message)
    return told.with_traceback(fault.__traceback__)


def shortened(message: str, is_wanted: Callable[[str], bool]) -> str:
    """What happened, and where; pure but for the text of the lines.

    >>> shortened("2 root error(s) found.\\n (0) INTERNAL: bad\\n\\t [[{{node a}}]]\\n (1) INTERNAL: bad", bool)
    'bad'

    Args:
        message: TensorFlow's.
        is_wanted: Whether frames of a file are told.
    """
    lines = [line for line in message.partition(_FROM_WORKER)[0].splitlines() if line.strip()]
    words = [line.strip() for line in lines if not _FRAME.match(line)]
    what = [_MARKS.sub("", line, count=1) for line in words if not _NOISE.match(line)]
    frames = [found for line in lines if (found := _FRAME.match(line)) and is_wanted(found["file"])]
    where = dict.fromkeys(_as_in_traceback(found["file"], int(found["line"]), found["function"]) for found in frames)
    return "\n".join([*dict.fromkeys(what), *where])


def _as_in_traceback(file: str, line: int, function: str) -> str:
    code = linecache.getline(file, line).strip()
    return f'  File "{file}", line {line}, in {function}' + (f"\n    {code}" if code else "")
