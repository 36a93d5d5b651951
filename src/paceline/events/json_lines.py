"""``--events FILE``: the events of a job as JSON, one object a line, written by its head."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from paceline.errors import ConfigurationError
from paceline.events.head_events import GenerationBegan, WorkerStarted
from paceline.events.worker_events import BatchDone, Event, OfRank, StepDone
from paceline.wire.codec import encode

STEP_INTERVAL_SECONDS = 1.0
"""Of each rank's `StepDone` and `BatchDone` one in so long is written: a file of a long job must fit on the disk."""


class JsonLines:
    """A sink that appends to a file; a context manager that opens and closes it.

    Each line is written at once, so `tail -f` follows. A disk that is full must not stop the training: the first
    failure to write ends the file.

    Args:
        path: The file.
        tell: Called with a line for the user.
        clock: Seconds since 1970.
    """

    def __init__(self, path: Path, tell: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._tell = tell
        self._clock = clock
        self._descriptor: int | None = None
        self._num_workers = 0
        self._processes: dict[int, WorkerStarted] = {}
        self._stepped_at: dict[int, float] = {}

    def __enter__(self) -> "JsonLines":
        """Raises: ConfigurationError: the file cannot be opened."""
        try:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as fault:
            raise ConfigurationError(
                f"--events: received {str(self._path)!r}; expected a file that can be written, in a folder that exists "
                f"({fault.strerror}) [events-file]"
            ) from fault
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def __call__(self, event: Event) -> None:
        """Writes the event, unless it is a step too many."""
        now = self._clock()
        match event:
            case GenerationBegan():
                self._num_workers = event.num_workers
                self._processes = {}
            case WorkerStarted():
                self._processes[event.rank] = event
            case StepDone() | BatchDone():
                if 0 <= now - self._stepped_at.get(event.rank, -STEP_INTERVAL_SECONDS) < STEP_INTERVAL_SECONDS:
                    return
                self._stepped_at[event.rank] = now
        self._write(encode(self._line(event, now)) + b"\n")

    def _line(self, event: Event, now: float) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(event)
        line = {"event": fields.pop("type"), "time": round(now, 3)}
        if isinstance(event, OfRank):
            started = self._processes.get(event.rank)
            if event.rank >= self._num_workers:
                del fields["rank"]
            if started is not None:
                fields = {"process": started.process, "host": started.host, **fields}
        return {**line, **fields}

    def _write(self, data: bytes) -> None:
        while data and self._descriptor is not None:
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError as fault:
                self._close()
                self._tell(
                    f"the events cannot be written to {self._path} any more ({fault.strerror}); the job continues "
                    "without. [events-file]"
                )

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)
