"""Which program each worker runs, from the words that stand in the script's place."""

import io
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from paceline.launcher.job import Program

_PYTHON = re.compile(r"python[0-9.]*")


def named_program(script: str, arguments: Sequence[str], is_module: bool) -> Program:
    """The program that the words name.

    Other launchers start any program, so their users write ``python train.py``. Paceline starts Python itself: an
    interpreter before the script is passed over, with its ``-u`` (which workers have anyway) and its ``-m``.

    >>> named_program("python", ["-u", "-m", "jobs.train", "--lr", "1"], False)
    Program(target='jobs.train', arguments=('--lr', '1'), is_module=True)

    Raises:
        ValueError: it is another interpreter, has other options, or no script follows.
    """
    if is_module or not _PYTHON.fullmatch(PurePath(script).name):
        return Program(script, tuple(arguments), is_module)
    own = Path(sys.executable)
    if PurePath(script).name != script and Path(script).absolute().parent != own.parent:
        raise ValueError(
            f"SCRIPT: received {script}, but workers run with {own}, for which Paceline is installed. Leave "
            f"{script} out, or install Paceline there and type: {script} -m paceline run ... [other-python]"
        )
    words = iter(arguments)
    for word in words:
        if word in ("-u", "--"):
            continue
        if found := re.fullmatch(r"-u*m(.*)", word, re.DOTALL):
            return Program(_next(script, words, found[1]), tuple(words), True)
        if word.startswith("-"):
            raise ValueError(
                f"SCRIPT: received {script} {word}; expected a script, -m and a module, or -u before them. Paceline "
                f"starts Python itself, without {word}. Most options of Python have a variable that workers inherit, "
                "such as PYTHONOPTIMIZE=1 or PYTHONWARNINGS=error. [python-option]"
            )
        return Program(word, tuple(words))
    return Program(_next(script, words), ())


def syntax_error_in(script: Path) -> str:
    """What Python says of a script that it cannot compile; empty: it can, or it has not been read.

    Workers would find the same, each after its start, and so many times.
    """
    try:
        with warnings.catch_warnings(), io.open_code(str(script.absolute())) as source:
            warnings.simplefilter("ignore")  # the workers give them
            compile(source.read(), str(script.absolute()), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as fault:  # a null byte is a ValueError in Python 3.11
        return "".join(traceback.format_exception_only(fault))
    except OSError:  # a folder with `__main__.py`; or the workers say why
        return ""
    return ""


def _next(script: str, words: Iterator[str], attached: str = "") -> str:
    name = attached or next(words, "")
    if not name:
        raise ValueError(
            f"SCRIPT: received {script}, and no script; expected one, e.g. paceline run --workers 2 train.py "
            "[no-script]"
        )
    return name
