"""The end of a worker's process, told once or not at all."""

import asyncio
import os
import socket
import threading
from typing import Any

from paceline.launcher.workers.worker_process import SpawnedWorker, WorkerProcess
from paceline.rendezvous.agent_messages import WorkerEnded


class Process:
    """Stands in for a process that ends when it is told to."""

    pid = 4711

    def __init__(self) -> None:
        ends = [os.pipe(), os.pipe()]
        self.stdout, self.stderr = (os.fdopen(read, "rb", buffering=0) for read, _ in ends)
        for _, write in ends:
            os.close(write)
        self.end = threading.Event()

    def wait(self) -> int:
        assert self.end.wait(60)
        return -9


def ends_of(*, detached: bool) -> list[tuple[int, int]]:
    """What is told of the end of rank 3, which comes after nobody listens any more, or before."""
    heard: list[object] = []

    async def live() -> None:
        loop, process, gone = asyncio.get_running_loop(), Process(), asyncio.Event()
        messages, workers_messages = socket.socketpair()
        pmi, workers_pmi = socket.socketpair()
        fake: Any = process
        worker = WorkerProcess(3, SpawnedWorker(fake, messages, pmi))
        worker.attach(loop, heard.append, gone.set)
        if detached:
            worker.detach(loop)
        process.end.set()
        await asyncio.wait_for(gone.wait(), 60)  # the number is free for another process, whoever listens
        if not detached:
            worker.detach(loop)
        for end in (workers_messages, pmi, workers_pmi):
            end.close()

    asyncio.run(live())
    return [(report.rank, report.exit_code) for report in heard if isinstance(report, WorkerEnded)]


def test_the_end_of_a_worker_is_told() -> None:
    assert ends_of(detached=False) == [(3, -9)]


def test_a_process_that_outlives_its_generation_is_not_taken_for_the_next_ones_worker() -> None:
    """It had survived SIGKILL for a while, in the kernel; its late end killed the worker of its rank's successor."""
    assert ends_of(detached=True) == []
