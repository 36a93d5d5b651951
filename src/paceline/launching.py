"""`paceline.launch`: a function instead of a script, for notebooks and for programs that train as one step of many."""

import codecs
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from paceline.cluster.environment import LIVE_LINE

FUNCTION_FILE = "function.pkl"
RESULT = "result"
"""How the files of results are called, with the rank behind it."""
FAILURE = "failure"
"""How those of exceptions are called."""
_PIECE_BYTES = 65536


def launch(
    function: Callable[..., Any],
    workers: int | str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    options: Sequence[str] = (),
) -> list[Any]:
    """Calls `function` in `workers` new processes, the workers of one job, and returns their results.

        def train(epochs):
            model = build_and_compile()              # plain Keras; trains on all workers
            return model.fit(x, y, epochs=epochs).history["loss"]

        losses = paceline.launch(train, workers=2, args=(3,))
        print(losses[0])                             # what the function returned on rank 0

    This process shows the output of the workers; each line begins with its rank. In a notebook, and in a terminal,
    Keras's progress bar is live, as it is without workers.

    Args:
        function: A function that cloudpickle can send to other processes, also one that is defined in a notebook.
            Import TensorFlow inside it. Workers use the same `sys.path` as this process.
        workers: How many processes, or ``"auto"``.
        args: Positional arguments, the same for every rank.
        kwargs: Keyword arguments, likewise.
        options: Further options of `paceline run`, e.g. ``["--bind", "none"]``.

    Returns:
        One result per rank, in rank order.

    Raises:
        RuntimeError: a worker failed. Its ``__cause__`` is the exception that `function` raised on the rank that
            failed first, of its own class, with the traceback there as a note; None for a worker that was killed.
    """
    with tempfile.TemporaryDirectory(prefix="paceline-launch-") as directory:
        call = cloudpickle.dumps((function, tuple(args), dict(kwargs or {})))
        Path(directory, FUNCTION_FILE).write_bytes(cloudpickle.dumps((sys.path, call)))
        # -P: without it, `-m` would let a `signal.py` in the current directory replace the standard library's.
        command = [sys.executable, "-P", "-m", "paceline", "run", "--workers", str(workers), *options]
        code = _relayed([*command, "-m", "paceline.bootstrap.function", directory])
        if code != 0:
            raise RuntimeError(
                f"the job of {workers} workers ended with exit code {code}; its output above shows the cause. "
                f"Command: {' '.join(command)} [launch-failed]"
            ) from _first_failure(Path(directory))
        return [cloudpickle.loads(path.read_bytes()) for _, path in _files(Path(directory), RESULT)]


def _files(directory: Path, what: str) -> list[tuple[int, Path]]:
    """The files that ranks have left there, in rank order."""
    return sorted((int(path.stem.rpartition("_")[2]), path) for path in directory.glob(f"{what}_*.pkl"))


def _first_failure(directory: Path) -> Exception | None:
    """The exception of the rank that failed first: the others' may be consequences of it."""
    failures = [(cloudpickle.loads(path.read_bytes()), rank) for rank, path in _files(directory, FAILURE)]
    if not failures:
        return None
    (_, pickled, traceback_text), rank = min(failures, key=lambda failure: failure[0][0])
    try:
        error: Exception = cloudpickle.loads(pickled)
    except Exception:  # its class needs what only a worker has imported or set up
        error = RuntimeError(traceback_text.strip().rpartition("\n")[2])
    error.add_note(f"on rank {rank}:\n{traceback_text}")
    return error


def _relayed(command: Sequence[str]) -> int:
    """Runs `command`, whose output is to be seen where this process prints, as it comes; returns its exit code."""
    given = _streams()
    with subprocess.Popen(command, **given) as process:
        try:
            if process.stdout is not None:
                _copy(process.stdout.fileno())
            return process.wait()
        except BaseException:
            process.terminate()
            raise


def _streams() -> dict[str, Any]:
    """For a process that prints: this process's terminal, or a pipe to be copied to what replaces `sys.stdout`."""
    terminal = sys.__stdout__
    if terminal is not None and sys.stdout is terminal and terminal.isatty():
        return {}
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    is_notebook = type(sys.stdout).__module__.startswith("ipykernel.")  # that may be imported elsewhere, too
    return {**piped, "env": {**os.environ, LIVE_LINE: "1"}} if is_notebook else piped


def _copy(descriptor: int) -> None:
    """Copies text to `sys.stdout` in pieces: a line that is rewritten in place has no end for long."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while piece := os.read(descriptor, _PIECE_BYTES):
        sys.stdout.write(decoder.decode(piece))
        sys.stdout.flush()
