"""Shows a job to its user while it runs: a sink of the head's events, a socket, and a port if one was asked for.

head ─ events ─► `JobState` ─ status ─► DIRECTORY/status      (`status_socket.py`)
                             └────────► --metrics-port        (`metrics_port.py`)
"""

import os
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from msgspec import structs

from paceline.cluster.job_directory import job_directory
from paceline.events.bus import Sink, guarded
from paceline.events.head_events import JobAccount
from paceline.events.worker_events import Event
from paceline.launcher.job import JobDescription
from paceline.launcher.live.job_state import JobState
from paceline.launcher.live.job_status import JobStatus
from paceline.launcher.live.status_socket import StatusSocket
from paceline.wire.codec import encode


@contextmanager
def shown_live(
    job: JobDescription, job_id: str, account: Callable[[], JobAccount], tell: Callable[[str], None]
) -> Iterator[Sink]:
    """While this lasts, the job can be asked; nothing of it is reason to end the job.

    Args:
        job: The job.
        job_id: Its name.
        account: Where its time has gone so far; called in a thread.
        tell: Called with a line for the user.

    Yields:
        What is to hear the events of the job.
    """
    began_at = time.monotonic()
    state = JobState(job_id, program_text(job), socket.gethostname(), os.getpid(), job.options.max_restarts, began_at)
    lock = threading.Lock()

    def hear(event: Event) -> None:
        with lock:
            state.hear(event, time.monotonic())

    def status() -> JobStatus:
        with lock:
            return structs.replace(state.status(time.monotonic()), account=account())

    port: AbstractContextManager[None] = nullcontext()
    if job.options.metrics_port is not None:
        from paceline.launcher.live.metrics_port import MetricsPort  # most jobs have none, and should start quickly

        port = MetricsPort(job.options.metrics_port, status, tell)
    with port, StatusSocket(job_directory(job_id), lambda: encode(status()), tell):
        yield guarded(hear)


def program_text(job: JobDescription) -> str:
    """What the workers run, as a user would type it."""
    if job.program is None:
        return shlex.join(job.command)
    return shlex.join([*(["-m"] if job.program.is_module else []), job.program.target, *job.program.arguments])
