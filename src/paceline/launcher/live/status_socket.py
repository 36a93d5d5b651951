"""The socket at which a job says what it does now: in the job's directory, for its owner alone.

    paceline status ── connects ──► DIRECTORY/status ── one `JobStatus` as JSON, and the end ──► paceline status

A thread answers, so that an answer comes also while the head waits for a terminal that takes nothing (Ctrl-S).

Paths of sockets may have 107 bytes, and folders for temporary files be longer: the name goes through a descriptor.
"""

import contextlib
import os
import select
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from paceline.cluster.job_directory import make_private
from paceline.errors import ConfigurationError

NAME = "status"
_LOOKING_SECONDS = 0.1
"""Between two looks for the file of the socket: the directory is removed at the end of each generation."""
_SENDING_SECONDS = 1.0
_CREDENTIALS = struct.Struct("iII")
"""Process, user, group."""


@contextmanager
def name_in(directory: Path) -> Iterator[str]:
    """A short name of the socket in `directory`, which is no link. Raises: OSError: there is no such directory."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)


def is_own(connected: socket.socket) -> bool:
    """Whether the process at the other end is of this user."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


class StatusSocket:
    """Answers while it lasts; a context manager.

    Args:
        directory: Of the job; made if it is not there.
        answer: What is said; called in a thread.
        tell: Called with a line for the user if the socket cannot be made; the job needs none.
    """

    def __init__(self, directory: Path, answer: Callable[[], bytes], tell: Callable[[str], None]) -> None:
        self._directory = directory
        self._answer = answer
        self._tell = tell
        self._listener: socket.socket | None = None
        self._wake, self._is_woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="paceline status", daemon=True)

    def __enter__(self) -> None:
        try:
            self._listener = self._listening()
        except (OSError, ConfigurationError) as fault:
            told = str(fault) if isinstance(fault, ConfigurationError) else f"{fault}. [job-directory]"
            self._tell(f"`paceline status` cannot ask this job, which continues: {told}")
            return
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._wake.close()  # the other end can be read now: the thread wakes
        if self._listener is None:
            self._is_woken.close()
            return
        self._thread.join()
        self._is_woken.close()
        self._listener.close()
        with contextlib.suppress(OSError):
            (self._directory / NAME).unlink()
        with contextlib.suppress(OSError):  # not if there are other files, which the last agent of the job removes
            self._directory.rmdir()

    def _listening(self) -> socket.socket:
        make_private(self._directory)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listener.fileno(), stat.S_IRUSR | stat.S_IWUSR)  # before it has a name
            with name_in(self._directory) as name:
                listener.bind(name)
            listener.listen()
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        return listener

    def _serve(self) -> None:
        while True:
            assert self._listener is not None
            ready, _, _ = select.select([self._listener, self._is_woken], [], [], _LOOKING_SECONDS)
            if self._is_woken in ready:
                return
            try:
                connected, _ = self._listener.accept()
            except BlockingIOError:  # nobody asks, or who asked has gone
                self._look()
            except OSError:  # no descriptor is left for now
                time.sleep(_LOOKING_SECONDS)
            else:
                with connected, contextlib.suppress(OSError):  # who asks may have gone, or not read
                    connected.settimeout(_SENDING_SECONDS)
                    if is_own(connected):
                        connected.sendall(self._answer())

    def _look(self) -> None:
        """Makes the socket anew if its file is gone."""
        with contextlib.suppress(OSError, ConfigurationError):
            if (self._directory / NAME).exists():
                return
            fresh = self._listening()
            former, self._listener = self._listener, fresh
            assert former is not None
            former.close()
