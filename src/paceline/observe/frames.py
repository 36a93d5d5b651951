"""Whose code a frame runs: the user's, or Paceline's and Keras's between the user's call and what went wrong."""

import os
import sys
import sysconfig
import threading
from collections.abc import Iterable
from pathlib import Path
from traceback import FrameSummary, walk_tb
from types import FrameType, TracebackType

PACELINE = str(Path(__file__).parents[1]) + os.sep
"""The folder of this package's own files."""

_TENSORFLOW = os.path.join("tensorflow", "python", "")  # noqa: PTH118  # a part of a path, as Keras looks for it
_LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_between(filename: str) -> bool:
    """Whether a frame of this file stands between the user's code and the fault: what Keras hides, and Paceline's."""
    return filename.startswith((PACELINE, *_keras())) or _TENSORFLOW in filename


def is_users(filename: str) -> bool:
    """Whether this is a file of the user's code, and of no library."""
    return not is_between(filename) and not _is_library(filename)


def hides_between() -> bool:
    """Whether such frames are to be hidden; ``keras.config.disable_traceback_filtering()`` says no."""
    config = getattr(sys.modules.get("keras"), "config", None)
    is_enabled = getattr(config, "is_traceback_filtering_enabled", None)
    return is_enabled is None or bool(is_enabled())


def script_line() -> str:
    """Where the user's code is now, as ``train.py:12 in main``: this thread's, else the main thread's; "" if nowhere.

    A collective within a step runs in a thread of TensorFlow's, while the main thread is in `fit`.
    """
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    return _users_line(sys._getframe()) or _users_line(main)


def users_line_of(trace: TracebackType | None) -> str:
    """Which line of the user's code an exception went through last, as `script_line` says it."""
    users = [(frame.f_code, line) for frame, line in walk_tb(trace) if not _is_library(frame.f_code.co_filename)]
    return _text(users[-1][0].co_filename, users[-1][0].co_name, users[-1][1]) if users else ""


def users_line_of_stack(frames: Iterable[FrameSummary]) -> str:
    """The user's line that has made an operation of TensorFlow's, whose `traceback` has the frames; "" if none has."""
    users = [one for one in frames if not _is_library(one.filename)]
    return _text(users[-1].filename, users[-1].name, users[-1].lineno or 0) if users else ""


def _users_line(frame: FrameType | None) -> str:
    while frame is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else _text(frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno)


def _text(filename: str, function: str, line: int) -> str:
    return f"{Path(filename).name}:{line}{'' if function == '<module>' else f' in {function}'}"


def _is_library(filename: str) -> bool:
    if is_between(filename):
        return True
    is_program = filename == getattr(sys.modules.get("__main__"), "__file__", None)  # -m and an installed module
    return not is_program and filename.startswith((*_LIBRARIES, "<frozen "))


def _keras() -> list[str]:
    return [os.path.join(folder, "") for folder in getattr(sys.modules.get("keras"), "__path__", ())]  # noqa: PTH118
