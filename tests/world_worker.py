"""What each rank of a warm world runs: it takes cases by name from the test process, one after the other.

    paceline run --workers 2 world_worker.py SOCKET        a world (see `worlds.py`)
    python world_worker.py SOCKET                          one process that nobody launches

A case is ``run_case(name, *arguments)`` of a file, whose folder is on the path meanwhile; what it returns goes back as
JSON. Without a name, the file is run as a script with these arguments.

Each case finds the process as the first one did: Keras's session and settings, the environment, the working directory.
Seeds are the case's own affair, as they are a script's.
"""

import faulthandler
import gc
import importlib.util
import json
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

RANK = int(os.environ.get("PACELINE_RANK", "0"))
_AFTER_THE_LIMIT_SECONDS = 10.0
"""By then the test process has ended this world, if it is still there."""

_loaded: dict[str, ModuleType] = {}


def main() -> None:
    gc.set_threshold(20_000)  # tracing makes many objects that stay: Python would look through all of them for nothing
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as line:
        connection.connect(sys.argv[1])
        _tell(line, rank=RANK)
        for request in map(json.loads, line):
            faulthandler.dump_traceback_later(request["limit_seconds"] + _AFTER_THE_LIMIT_SECONDS, exit=True)
            try:
                with _isolated(request["folder"]):
                    told = _told(**request)
            except BaseException:
                _end_of_output(request["number"])
                _tell(line, failure=traceback.format_exc())
                continue
            _end_of_output(request["number"])
            _tell(line, told=told, knows_paceline="paceline" in sys.modules)
            faulthandler.cancel_dump_traceback_later()


@contextmanager
def _isolated(folder: str) -> Iterator[None]:
    environment, paths, directory = dict(os.environ), list(sys.path), Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(directory)
        sys.path[:] = paths
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        _reset_keras()


def _reset_keras() -> None:
    keras.backend.clear_session()
    keras.config.set_floatx("float32")
    keras.config.enable_traceback_filtering()
    tf.config.run_functions_eagerly(False)
    if "paceline" in sys.modules:
        from paceline.strategy.base import named_strategies

        named_strategies.clear()  # the next case is a script that has named none so far
    gc.freeze()  # what stays after a case: looked through again and again, it was a sixth of the time


def _told(script: str, case: str | None, arguments: list[str], **_: Any) -> Any:
    if case is not None:
        return _module(script).run_case(case, *arguments)
    folder, words = str(Path(script).parent), sys.argv
    sys.path.insert(0, folder)
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv = words
        for name, module in [*sys.modules.items()]:  # the next script may have files of the same names
            if str(getattr(module, "__file__", "")).startswith(f"{folder}/"):
                del sys.modules[name]
    return None


def _module(script: str) -> ModuleType:
    """The file, imported once; its folder stays on the path for what its cases import."""
    folder = str(Path(script).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if script not in _loaded:
        spec = importlib.util.spec_from_file_location(Path(script).stem, script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        _loaded[script] = module
    return _loaded[script]


def _tell(line: Any, **told: Any) -> None:
    print(json.dumps(told), file=line, flush=True)


def _end_of_output(number: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        print(f"\nend of case {number} on rank {RANK}", file=stream, flush=True)


if __name__ == "__main__":
    main()
