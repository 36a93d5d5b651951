"""A job under observation: its lines stamped as they come, its marks, and a way to hurt its ranks from outside."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import harness
import psutil
from marks import FOLDER, read_marks

_POLL_SECONDS = 0.2
"""Times come from the marks and the stamped lines; looking more often would only take time from the job."""

_IDLE_SECONDS = 1.0
_ENDING_SECONDS = 15.0


class RunningJob:
    """Runs `command`; leaving the block ends it and all that it has started.

    Args:
        command: A launcher, its options, a script that makes marks.
        environment: More variables.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._environment = environment or {}
        self.lines: list[tuple[float, str]] = []

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        variables = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            FOLDER: self._folder.name,
            **self._environment,
        }
        self.began_at = time.time()
        self._process = subprocess.Popen(
            self._command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        started = self.descendants()
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_ENDING_SECONDS)
        for process in (*started, self._process):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                process.kill()
        self._process.wait()
        self._reader.join(_ENDING_SECONDS)
        self._folder.cleanup()

    def marks(self) -> list[dict[str, Any]]:
        """What its processes have noted so far."""
        return read_marks(Path(self._folder.name))

    def steps(self, rank: int, pids_before: Sequence[int] = ()) -> list[dict[str, Any]]:
        """The steps of `rank`, without those of processes that are known from before."""
        return [
            one
            for one in self.marks()
            if one["what"] == "step" and one["rank"] == rank and one["pid"] not in pids_before
        ]

    def line_after(self, moment: float, text: str) -> float | None:
        """When the first line with `text` came after `moment`."""
        return next((at for at, line in list(self.lines) if at >= moment and text in line), None)

    def wait_for(self, what: str, happened: Callable[[], Any]) -> Any:
        """Waits until `happened` gives something, and returns it."""
        give_up_at = time.monotonic() + harness.DEADLINE_SECONDS
        while not (found := happened()):
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                output = "".join(line for _, line in self.lines)
                raise RuntimeError(f"{' '.join(self._command)}: {what} did not happen:\n{output}"[-4000:])
            time.sleep(_POLL_SECONDS)
        return found

    def standbys_wait(self, number: int) -> bool:
        """Whether so many standbys have done all that they can do before they are needed."""
        spent = self._standby_seconds()
        if len(spent) < number:
            return False
        time.sleep(_IDLE_SECONDS)
        return self._standby_seconds() == spent

    def _standby_seconds(self) -> dict[int, float]:
        seconds = {}
        for process in self.descendants():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("PACELINE_STANDBY_WORKER") == "1" and process.pid not in self._pids():
                    seconds[process.pid] = process.cpu_times().user
        return seconds

    def _pids(self) -> set[int]:
        """Of processes that work, as far as marks and lines tell: a standby keeps its variables when it is called."""
        called = (re.search(r" runs again \(pid (\d+) on ", line) for _, line in list(self.lines))
        return {one["pid"] for one in self.marks()} | {int(found[1]) for found in called if found}

    def descendants(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append((time.time(), line))
