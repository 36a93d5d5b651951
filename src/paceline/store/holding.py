"""One job for each directory: the lock that the chief holds, and the tidying that it makes safe.

Snapshots would stay whole without it. But two jobs that write to one directory would delete each other's oldest
snapshots and go on from each other's newest.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paceline.errors import ConfigurationError
from paceline.store.folder import Folder, Lock
from paceline.store.staging import Writer, is_of_generation, is_of_job

LOCK_FILE = ".lock"

_INTERVAL_SECONDS = 0.1
_MAX_SHOWN_CHARACTERS = 200


@contextmanager
def held(
    folder: Folder,
    writer: Writer,
    wait_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[str, ...]]:
    """Holds the directory for the job of `writer` while the block lasts, and first removes what dead jobs left behind.

    Yields lines to log.

    Args:
        folder: The directory; made if it is not there.
        writer: Who holds it.
        wait_seconds: For a holder that is about to go, as a killed chief is.
        clock: Seconds.
        sleep: For so many seconds.

    Raises:
        ConfigurationError: another job holds it.
        OSError: it cannot be made or written.
    """
    text = json.dumps({"job": writer.job_id, "host": socket.gethostname(), "process": os.getpid()})
    deadline = clock() + wait_seconds
    while not (lock := folder.lock(LOCK_FILE, text)).is_held:
        if clock() >= deadline:
            raise ConfigurationError(
                f"--snapshot-dir: received {folder.location}, where another job writes "
                f"({lock.holder[:_MAX_SHOWN_CHARACTERS] or 'it does not say which'}). "
                "Give each job a directory of its own, or end the other one"
            )
        sleep(_INTERVAL_SECONDS)
    try:
        yield _tidied(folder, writer, lock)
    finally:
        lock.release()


def _tidied(folder: Folder, writer: Writer, lock: Lock) -> tuple[str, ...]:
    lines = []
    for name in folder.unpublished():
        if is_of_generation(name, writer):
            continue
        if not lock.is_certain and not is_of_job(name, writer):
            lines.append(
                f"{folder.location}/{name} may be half of another job's snapshot. There are no locks here that could "
                "tell, so it stays: delete it if that job has ended"
            )
            continue
        try:
            folder.delete(name)
            lines.append(f"removed {folder.location}/{name}, which a job that has ended left behind")
        except OSError as error:
            lines.append(f"{folder.location}/{name} is left behind and cannot be removed ({error.strerror or error})")
    return tuple(lines)
