"""Work off the step path: one thread, one job after the other.

    training   submit(A) ─ step ─ submit(B) ─ step ─ step ─
    thread     [ A ............................... ][ B ......... ]

How many wait is for whoever hands them over to decide (`is_idle`). Failures are told, not raised.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

_LOGGER = logging.getLogger("paceline")

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Result]):
    """What came of a job.

    Args:
        result: What the work returned; none if it failed.
        error: What it raised; none if it did not fail.
    """

    result: Result | None = None
    error: Exception | None = None


class BackgroundWriter(Generic[Job, Result]):
    """Does jobs in a thread, in the order in which they are handed over.

        with BackgroundWriter(write, on_done) as writer:
            writer.submit(job)          # returns at once

    Leaving the block finishes what runs and waits, for as long as `patience_seconds`; the thread never keeps a process
    from ending.

    Args:
        write: The work.
        on_done: Told of each job that was begun, in the thread; what it raises is logged.
        patience_seconds: How long leaving the block may take.
        head_start_seconds: How long whoever has handed over a job goes on alone. A thread that wakes at once takes the
            interpreter, and a worker's only core, from the step that is about to begin.
    """

    def __init__(
        self,
        write: Callable[[Job], Result],
        on_done: Callable[[Job, Outcome[Result]], None],
        *,
        patience_seconds: float = 60.0,
        head_start_seconds: float = 0.0,
    ) -> None:
        self._write = write
        self._on_done = on_done
        self._patience_seconds = patience_seconds
        self._head_start_seconds = head_start_seconds
        self._change = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._is_busy = False
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="paceline-snapshots", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.flush(self._patience_seconds)
        with self._change:
            self._is_ending = True
            self._change.notify_all()

    def submit(self, job: Job) -> None:
        """Hands over a job and returns at once."""
        with self._change:
            self._waiting.append(job)
            self._change.notify_all()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return self.flush(0)

    def flush(self, timeout_seconds: float) -> bool:
        """Waits until nothing runs and nothing waits; whether that came in time."""
        with self._change:
            return self._change.wait_for(lambda: not self._is_busy and not self._waiting, timeout_seconds)

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._is_ending)
                if not self._waiting:
                    return
                job = self._waiting.popleft()
                self._is_busy = True
            if self._head_start_seconds:
                time.sleep(self._head_start_seconds)
            try:
                self._on_done(job, self._outcome(job))
            except Exception:  # the thread must live: the next job is another chance
                _LOGGER.exception("a snapshot could not be completed; the next one is tried when it is due")
            finally:
                with self._change:
                    self._is_busy = False
                    self._change.notify_all()
                del job  # its arrays are large

    def _outcome(self, job: Job) -> Outcome[Result]:
        try:
            return Outcome(self._write(job))
        except Exception as error:  # whatever it is, training goes on
            return Outcome(error=error)
