"""``python -m paceline.bootstrap.function DIRECTORY``: what a worker of `paceline.launch` runs as its script.

The directory is this user's own, made by `paceline.launch` a moment ago: it holds the pickled call and where its
modules are found, and receives each rank's pickled result, or the exception that its call has raised.
"""

import sys
import time
import traceback
from pathlib import Path

import cloudpickle

from paceline.launching import FAILURE, FUNCTION_FILE, RESULT
from paceline.ranks import rank


def call(directory: Path) -> None:
    """Calls the function in `directory` and leaves its result or exception there, complete or not at all."""
    sys.path[:], pickled_call = cloudpickle.loads((directory / FUNCTION_FILE).read_bytes())
    function, args, kwargs = cloudpickle.loads(pickled_call)
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        _leave_there(directory, FAILURE, cloudpickle.dumps((time.time_ns(), _carried(error), _traceback_of(error))))
        raise
    _leave_there(directory, RESULT, cloudpickle.dumps(result))


def _leave_there(directory: Path, what: str, content: bytes) -> None:
    unfinished = directory / f"unfinished_{rank()}"
    unfinished.write_bytes(content)
    unfinished.rename(directory / f"{what}_{rank()}.pkl")


def _carried(error: Exception) -> bytes:
    """`error` pickled; a `RuntimeError` with its text for one that cannot be, or not be read again."""
    try:
        pickled: bytes = cloudpickle.dumps(error)
        cloudpickle.loads(pickled)
    except Exception:
        text = "".join(traceback.format_exception_only(error)).strip()
        return cloudpickle.dumps(RuntimeError(text))  # type: ignore[no-any-return]
    return pickled


def _traceback_of(error: Exception) -> str:
    trace = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, trace.tb_next if trace else None))


if __name__ == "__main__":
    call(Path(sys.argv[1]))
