"""Python programs that tests start, each under a hard deadline after which nothing of it is left."""

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from process_table import SOON_SECONDS, end_all

LIMIT_SECONDS = 360.0
"""For a program that does what it should, on a slow machine with other tests beside this one. Less than this shows
nothing but that the machine was busy."""

_MARK = "PACELINE_TEST_PROGRAM"
_NOT_INHERITED = ("TF_CONFIG", "PACELINE_RANK", "NO_COLOR", "COLUMNS")


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    output: str
    """Standard output and standard error, as a terminal would show them."""
    seconds: float

    def lines(self, start: str = "") -> list[str]:
        """The lines of the output that begin with `start`."""
        return [line for line in self.output.splitlines() if line.startswith(start)]


class Program:
    """A running program; its output goes to a file, so that nobody has to read it for it to go on."""

    def __init__(self, arguments: Sequence[str | Path], folder: Path, variables: Mapping[str, str]) -> None:
        self._mark = uuid.uuid4().hex
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `ended`
        inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        self._began = time.monotonic()
        self.process = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", _MARK: self._mark, **variables},
            start_new_session=True,
        )

    def ended(self, limit_seconds: float = LIMIT_SECONDS) -> Ended:
        """Waits for the end.

        Raises:
            AssertionError: it took longer than `limit_seconds`, and was killed.
        """
        try:
            code = self.process.wait(max(0.0, self._began + limit_seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {limit_seconds} s; until then:\n{self.kill()}") from None
        seconds = time.monotonic() - self._began
        return Ended(code, self._read(), seconds)

    def kill(self) -> str:
        """Ends it and everything that it started; returns the output."""
        self.process.kill()  # it may not have become the program yet, and not have the mark
        end_all(_MARK, self._mark)
        self.process.wait(SOON_SECONDS)
        return "" if self._output.closed else self._read()

    def output(self) -> str:
        """What it has printed so far."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def close(self) -> None:
        """Gives up the output of a program that has ended. Idempotent."""
        self._output.close()

    def _read(self) -> str:
        self._output.seek(0)
        with self._output:
            return self._output.read().decode(errors="replace")


def start_python(*arguments: str | Path, folder: Path, variables: Mapping[str, str] | None = None) -> Program:
    """Starts ``python *arguments`` in `folder`."""
    return Program([sys.executable, *arguments], folder, variables or {})


def run_python(
    *arguments: str | Path,
    folder: Path,
    limit_seconds: float = LIMIT_SECONDS,
    variables: Mapping[str, str] | None = None,
) -> Ended:
    """Runs ``python *arguments`` in `folder` to its end."""
    return start_python(*arguments, folder=folder, variables=variables).ended(limit_seconds)


def run_workers(
    num_workers: int,
    *arguments: str | Path,
    folder: Path,
    limit_seconds: float = LIMIT_SECONDS,
    variables: Mapping[str, str] | None = None,
) -> Ended:
    """Runs ``paceline run --workers N *arguments`` in `folder` to its end."""
    command = ["-m", "paceline", "run", "--workers", str(num_workers), *arguments]
    return run_python(*command, folder=folder, limit_seconds=limit_seconds, variables=variables)
