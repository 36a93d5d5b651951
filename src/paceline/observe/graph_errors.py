"""What an error of TensorFlow's is about, without TensorFlow's own words around that.

TensorFlow tells all frames of the tracing first, in many lines, and what happened behind them.
"""

import linecache
import re
from collections.abc import Callable

_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')
_NOISE = re.compile(
    r"Graph execution error|Detected at node|Stack trace for op definition|<stack traces unavailable>"
    r"|\[\[\{\{|\[\[[\w./-]+/_\d+\]\]|\[\[[A-Za-z]\w*\]\]"
    r"|\d+ root error\(s\) found|\d+ successful operations|\d+ derived errors ignored"
)
_MARKS = re.compile(r"(\(\d+\) [A-Z_]+: +)?(\x1b\[1m)?(\{\{function_node [^}]*\}\} *)?")
"""What stands before each of several errors, and before that of an operation in a function; Keras makes these bold."""
_OPERATION = re.compile(r" *\[Op:\w+\]( name:[^\x1b]*)?(\x1b\[0m)?$")
"""What stands behind the error of an operation that is called by itself."""
_OF_FUNCTION = re.compile(r".*transformation with iterator: Iterator::\S+: ")
"""What each stage of the data puts before the error of a function that it calls; the innermost comes last."""
_OF_DATA_WORKER = re.compile(
    r"Failed to get element from worker \S+: (Failed to get an element, with a nonretryable error: )?"
    r"(Failed to get element: )?"
)

_FROM_WORKER = "Additional GRPC error information"

_OF_TENSORFLOW = re.compile(r"Graph execution error:|\[\[\{\{node |\{\{function_node ")
_KIND = re.compile(r"([\w.]+): (.+)", re.DOTALL)


def cause_in(text: str) -> str:
    """Python's last words on an exception; where TensorFlow has written them, the kind and what happened only.

    >>> cause_in("DataLossError: Graph execution error:\\n\\nDetected at node a\\nbad\\n\\t [[{{node a}}]] [Op:b]")
    'DataLossError: bad'

    Args:
        text: As the last lines of a traceback have it.
    """
    found = _KIND.match(text) if _OF_TENSORFLOW.search(text) else None
    what = shortened(found[2]) if found else ""
    return f"{found[1]}: {what}" if found and what else text


def _of_nobody(_: str) -> bool:
    return False


def shortened(message: str, is_wanted: Callable[[str], bool] = _of_nobody) -> str:
    """What happened, and where; pure but for the text of the lines.

    >>> shortened("2 root error(s) found.\\n (0) INTERNAL: bad\\n\\t [[{{node a}}]]\\n (1) INTERNAL: bad")
    'bad'

    Args:
        message: TensorFlow's.
        is_wanted: Whether frames of a file are told; none, if left out.
    """
    lines = [line for line in message.partition(_FROM_WORKER)[0].splitlines() if line.strip()]
    words = [line.strip() for line in lines if not _FRAME.match(line)]
    what = filter(None, (_of_happening(line) for line in words if not _NOISE.match(line)))
    frames = [found for line in lines if (found := _FRAME.match(line)) and is_wanted(found["file"])]
    where = dict.fromkeys(_as_in_traceback(found["file"], int(found["line"]), found["function"]) for found in frames)
    return "\n".join([*dict.fromkeys(what), *where])


def _of_happening(line: str) -> str:
    line = _OPERATION.sub("", _MARKS.sub("", line, count=1))
    line = _OF_FUNCTION.sub("in a function of the data: ", line, count=1)
    return _OF_DATA_WORKER.sub("in a data worker: ", line, count=1)


def _as_in_traceback(file: str, line: int, function: str) -> str:
    code = linecache.getline(file, line).strip()
    return f'  File "{file}", line {line}, in {function}' + (f"\n    {code}" if code else "")
