"""One job for each directory: the lock that the chief holds, and the tidying that it makes safe.

Snapshots would stay whole without it. But two jobs that write to one directory would delete each other's oldest
snapshots and go on from each other's newest.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paceline.errors import ConfigurationError
from paceline.store.folder import Folder, Lock
from paceline.store.staging import Writer, is_of_generation, is_of_job
from paceline.wire.codec import Decoder, GarbledError, Record, encode

LOCK_FILE = ".lock"

logger = logging.getLogger("paceline")

_OWN_JOB_SECONDS = 150.0
"""For the chief of an earlier generation, whose host is lost: a file server keeps its lock for 90 s or more."""

_INTERVAL_SECONDS = 0.1
_MAX_SHOWN_CHARACTERS = 200


class _Holder(Record, frozen=True):
    """Who holds a directory, as the file of the lock says."""

    job: str
    generation: int
    host: str
    process: int


_holder = Decoder[_Holder](_Holder)


class DirectoryLock:
    """A directory that is held.

    Args:
        folder: Which.
        lock: On it.
        text: What the lock says of its holder.
    """

    def __init__(self, folder: Folder, lock: Lock, text: str) -> None:
        self.lines: tuple[str, ...] = ()
        """To log."""
        self._folder = folder
        self._lock = lock
        self._text = text

    def confirm(self) -> None:
        """Before anything is written: who removes the directory takes the lock away, and another job may have it then.

        Raises:
            ConfigurationError: another job has it.
            OSError: the directory can be neither found nor made.
        """
        if self._lock.is_in_place():
            return
        self._folder.make("")
        lock = self._folder.lock(LOCK_FILE, self._text)
        if not lock.is_held:
            raise ConfigurationError(
                f"{self._folder.location} was removed while this job was running, and another job writes there "
                f"now ({lock.holder[:_MAX_SHOWN_CHARACTERS]}) [snapshot-locked]"
            )
        if lock.is_certain:
            logger.warning(
                "%s was removed while this job was running: the directory was created and locked again",
                self._folder.location,
            )
        self._lock.release()
        self._lock = lock

    def release(self) -> None:
        """Gives it back."""
        self._lock.release()


@contextmanager
def locked_for(
    folder: Folder,
    writer: Writer,
    wait_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    own_job_seconds: float = _OWN_JOB_SECONDS,
) -> Iterator[DirectoryLock]:
    """Holds the directory for the job of `writer` while the block lasts, and first removes what dead jobs left behind.

    Args:
        folder: The directory; made if it is not there.
        writer: Who holds it.
        wait_seconds: For a holder that is about to go, as a killed chief is.
        clock: Seconds.
        sleep: For so many seconds.
        own_job_seconds: In place of `wait_seconds` for an earlier generation of the same job, which cannot be alive.

    Raises:
        ConfigurationError: another job holds it.
        OSError: it cannot be made or read.
    """
    text = encode(_Holder(writer.job_id, writer.generation, socket.gethostname(), os.getpid())).decode()
    folder.make("", with_parents=True)
    begin, is_told = clock(), False
    while not (lock := folder.lock(LOCK_FILE, text)).is_held:
        seconds, is_own = clock() - begin, _is_earlier_generation(lock.holder, writer)
        holder = lock.holder[:_MAX_SHOWN_CHARACTERS] or "unknown"
        if seconds >= (max(wait_seconds, own_job_seconds) if is_own else wait_seconds):
            raise ConfigurationError(
                f"--snapshot-dir: received {folder.location}, where "
                f"{'an earlier generation of this job still holds the lock' if is_own else 'another job writes'} "
                f"({holder}). Give each job a directory of its own, or end the other one [snapshot-locked]"
            )
        if seconds >= wait_seconds and not is_told:
            is_told = True
            logger.warning(
                "%s is still locked by an earlier generation of this job (%s). If its host is lost, the file "
                "server keeps the lock for a while; waiting up to %.0f s.",
                folder.location,
                holder,
                own_job_seconds,
            )
        sleep(_INTERVAL_SECONDS)
    directory_lock = DirectoryLock(folder, lock, text)
    try:
        directory_lock.lines = _tidied(folder, writer, lock)
        yield directory_lock
    finally:
        directory_lock.release()


def _is_earlier_generation(holder: str, writer: Writer) -> bool:
    try:
        found = _holder(holder.encode())
    except GarbledError:  # nothing yet, half of it, or somebody else's words
        return False
    return found.job == writer.job_id and found.generation < writer.generation


def _tidied(folder: Folder, writer: Writer, lock: Lock) -> tuple[str, ...]:
    lines = []
    for name in folder.unpublished():
        if is_of_generation(name, writer):
            continue
        if not lock.is_certain and not is_of_job(name, writer):
            lines.append(
                f"{folder.location}/{name} may be an unfinished snapshot of another job. This file system has no "
                "locks to check that, so the directory stays: delete it if the other job has ended"
            )
            continue
        try:
            folder.delete(name)
            lines.append(f"removed {folder.location}/{name}, an unfinished snapshot of a job that has ended")
        except OSError as error:
            lines.append(
                f"{folder.location}/{name}, an unfinished snapshot, cannot be removed ({error.strerror or error})"
            )
    return tuple(lines)
