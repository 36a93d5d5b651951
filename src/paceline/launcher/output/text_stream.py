"""The stream to which the launcher writes: a terminal, file or pipe. All writes go through this module."""

import contextlib
import errno
import os
import select
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

from paceline.cluster.environment import FORCE_COLOR, LIVE_LINE, NO_COLOR

_DEFAULT_WIDTH = 80
_PIECE_CHARACTERS = 1000
"""Never more than 4096 bytes, which a pipe that has room for any takes at once (``PIPE_BUF``)."""

_PAUSE_MILLISECONDS = 1000

_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ESTALE)
"""What a file says for which there is no room, perhaps only for now: no reason to stop a job."""


def wants_colours(is_terminal: bool, variables: Mapping[str, str]) -> bool:
    """Whether to write colours: on a terminal, unless NO_COLOR is set; elsewhere, such as in CI, if FORCE_COLOR is.

    >>> wants_colours(False, {"FORCE_COLOR": "1"}), wants_colours(True, {"FORCE_COLOR": "1", "NO_COLOR": "1"})
    (True, False)
    """
    return not variables.get(NO_COLOR) and (is_terminal or bool(variables.get(FORCE_COLOR)))


class TextOutput:
    """A destination of text: a Python stream, such as ``sys.stdout``.

    Args:
        stream: Where to write.
        variables: The environment, of which TERM, NO_COLOR, FORCE_COLOR and PACELINE_LIVE_LINE are read.
        while_blocked: Called every second while the stream takes nothing (a pager that is not read, Ctrl-S).
    """

    def __init__(
        self, stream: TextIO, variables: Mapping[str, str], while_blocked: Callable[[], None] | None = None
    ) -> None:
        self._stream = stream
        self._while_blocked = while_blocked
        self._has_told = False
        self.is_closed = False
        """Whether a write failed: the reader is gone (``paceline run … | head``)."""
        is_terminal = stream.isatty() and variables.get("TERM") != "dumb"
        self.is_live = is_terminal or bool(variables.get(LIVE_LINE))
        """Whether a line can be erased and written anew: on a terminal, and in a notebook."""
        self._erases_with_spaces = not is_terminal  # JupyterLab knows carriage returns, and no other movement
        self.is_coloured = wants_colours(self.is_live, variables)

    def erasing(self, columns: int) -> str:
        """What takes a line of so many columns away, and stands at its beginning."""
        return f"\r{' ' * columns}\r" if self._erases_with_spaces else "\r\x1b[K"

    @property
    def width(self) -> int:
        """Columns of the terminal, now: its own answer, which follows the user's resizing."""
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or _DEFAULT_WIDTH
        return _DEFAULT_WIDTH

    def write(self, text: str) -> None:
        """Writes at once; what the encoding lacks becomes a question mark. A reader that is gone is no error."""
        if self.is_closed:
            return
        try:
            if self._while_blocked is None:
                self._write(text)
                return
            for start in range(0, len(text), _PIECE_CHARACTERS):
                self._await_room(self._while_blocked)
                self._write(text[start : start + _PIECE_CHARACTERS])
        except (OSError, ValueError) as fault:
            if isinstance(fault, OSError) and fault.errno in _OF_DISKS:
                self._tell_once(fault)
                return
            self.is_closed = True  # the pipe's reader left, the terminal hung up, the stream was closed
            self._forget_unwritten()

    def _tell_once(self, fault: OSError) -> None:
        if self._stream is sys.stdout and not self._has_told:
            self._has_told = True
            with contextlib.suppress(OSError, ValueError):
                print(
                    f"paceline: stdout cannot be written ({fault.strerror}): the workers' output is lost until it "
                    "can be written again; the job continues",
                    file=sys.stderr,
                    flush=True,
                )

    def _await_room(self, while_blocked: Callable[[], None]) -> None:
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):  # no file: it cannot block
            return
        room = select.poll()
        room.register(descriptor, select.POLLOUT)
        while not room.poll(_PAUSE_MILLISECONDS):
            while_blocked()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            encoding = self._stream.encoding or "ascii"
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._flush()

    def _flush(self) -> None:
        try:
            self._stream.flush()
        except BlockingIOError:  # another program on this terminal made it non-blocking; the rest is still buffered
            os.set_blocking(self._stream.fileno(), True)
            self._stream.flush()

    def _forget_unwritten(self) -> None:
        """Python would try the rest again at exit, and print an error about it that nobody can read."""
        if self._stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)
