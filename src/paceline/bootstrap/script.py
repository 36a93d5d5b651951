"""Running a script or module as Python itself would: as ``__main__``, with its own ``sys.argv`` and ``sys.path[0]``."""

import io
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


def run_script(arguments: Sequence[str]) -> None:
    """Runs ``[script, *args]`` or ``["-m", module, *args]`` in this process, which was started with ``python -P``.

    So `sys.path` has no folder of the command's own yet, and the script's is put before all others.

    Raises:
        FileNotFoundError: there is no such script.
    """
    if arguments[0] == "-m":
        sys.argv = [arguments[1], *arguments[2:]]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    script = Path(arguments[0])
    sys.argv = [str(script), *arguments[1:]]
    if script.is_dir():
        runpy.run_path(str(script), run_name="__main__")
        return
    sys.path.insert(0, str(script.resolve().parent))
    # Not runpy.run_path: it takes the module's names away when the script ends, while threads and exit handlers of
    # the script still use them.
    file = str(script.absolute())  # as Python has it, so that the script may change its directory
    main = ModuleType("__main__")
    main.__dict__.update(__file__=file, __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = main
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec")
    exec(code, main.__dict__)
