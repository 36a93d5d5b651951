"""Says on stderr what is being measured, and for how long: one line that changes on a terminal, else one now and then.

paceline: measuring what each stage costs ... 12 s
"""

import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

SILENT_SECONDS = 2.0
"""Only what takes longer says how far it is."""
_INTERVAL_SECONDS = 5.0
"""Between two lines that stay."""
_CLEARED = "\r\x1b[2K"


class ProgressLine:
    """A context in which `tell` says what begins.

    with ProgressLine(sys.stderr) as line:
        line.tell("what each stage costs")

    Args:
        stream: Where to write.
        clock: Seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._clock = clock
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._what, self._begun, self._last = "", clock(), clock() - _INTERVAL_SECONDS
        self._thread = threading.Thread(target=self._tick_on, name="paceline says how far it is", daemon=True)

    def __enter__(self) -> "ProgressLine":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._is_over.set()
        self._thread.join()
        self.tell("")

    def tell(self, what: str) -> None:
        """Something else begins."""
        with self._lock:
            if self._is_terminal and self._what and self._clock() - self._begun >= SILENT_SECONDS:
                self._write(_CLEARED)
            self._what, self._begun = what, self._clock()

    def tick(self) -> None:
        """Says for how long it lasts, if that is due."""
        with self._lock:
            now = self._clock()
            elapsed = now - self._begun
            if not self._what or elapsed < SILENT_SECONDS:
                return
            line = f"paceline: measuring {self._what} ... {elapsed:.0f} s"
            if self._is_terminal:
                self._write(f"{_CLEARED}{line}")
            elif now - self._last >= _INTERVAL_SECONDS:
                self._last = now
                self._write(f"{line}\n")

    def _tick_on(self) -> None:
        while not self._is_over.wait(1.0):
            self.tick()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
