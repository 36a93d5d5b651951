"""``python -P -m paceline.bootstrap.profiling MODEL ROWS RESULT``: how `paceline plan` has a model measured.

MODEL is ``file.py:name``, RESULT a file for the profile as JSON. What is wrong with the model is said here, on stderr;
the exit code says that it was.
"""

import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from paceline.bootstrap.worker import bind_to_cores
from paceline.errors import EXIT_CONFIGURATION, ConfigurationError
from paceline.leaving import flush_output
from paceline.wire.codec import encode

SILENT_SECONDS = 2.0
"""Only what takes longer says how far it is."""


def main(model: str, rows: int, result: Path) -> None:
    """Measures `model` and writes its profile."""
    os.dup2(2, 1)  # what the user's file prints is no part of the plan
    bind_to_cores(os.environ)
    path, _, name = model.rpartition(":")
    try:
        made = _model(Path(path), name)
        from paceline.pipeline.model_profile import profile_of  # TensorFlow

        result.write_bytes(encode(profile_of(made, rows, progress=_told())))
    except ConfigurationError as refusal:
        print(f"paceline: {refusal}", file=sys.stderr)
        _end(EXIT_CONFIGURATION)


def _model(path: Path, name: str) -> Any:
    """What `name` is in the file, or returns.

    Raises:
        ConfigurationError: there is none, or it needs arguments.
    """
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv[:] = [str(path)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(
            f"{path} is no Python file: expected file.py:name, e.g. model.py:build_model. [plan-model]"
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # as an import would: classes of the file are found by their module
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        own = [
            key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == path.stem
        ]
        raise ConfigurationError(
            f"{path} has no {name!r}; it has the functions {', '.join(own) or '(none)'}: name one that returns the "
            "model. [plan-model]"
        )
    made = getattr(module, name)
    if not inspect.isroutine(made) and not inspect.isclass(made):
        return made
    needed = [
        one.name
        for one in inspect.signature(made).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if needed:
        raise ConfigurationError(
            f"{name} in {path} needs the arguments {', '.join(needed)}: give them defaults, or write a function "
            "without arguments that calls it. [plan-model]"
        )
    return made()


def _told() -> Callable[[int, int], None]:
    last = time.monotonic()

    def progress(done: int, of: int) -> None:
        nonlocal last
        if time.monotonic() - last > SILENT_SECONDS:
            last = time.monotonic()
            print(f"paceline: measured {done} of {of} different layers", file=sys.stderr, flush=True)

    return progress


def _end(exit_code: int) -> NoReturn:
    flush_output()
    raise SystemExit(exit_code)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
