"""The launcher's front door: runs a job from whichever place this host has in it.

check ─► guard ─► import of the rest, while the guard gets ready ─► head, in an event loop
"""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from paceline.launcher.checks import check
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.guard_line import GuardLine, guarded

if TYPE_CHECKING:
    from paceline.launcher.head import Head


def run(job: JobDescription) -> int:
    """Runs `job`, or this host's part of it, leaves no process behind, and returns its exit code.

    That is 0, or the first failure's. The workers' output goes to ``sys.stdout`` and ``sys.stderr``. May be called
    inside a running event loop (a notebook), which then stands still meanwhile.

    Raises:
        ConfigurationError: a setting is wrong; nothing has been started.
        OSError: the system cannot start the processes; none is left.
    """
    check(job)
    if job.nodes is not None and job.nodes.node_rank > 0:
        from paceline.launcher.hosts.node import run_node  # only a node needs it

        return run_node(job, job.nodes)
    job_id = os.urandom(8).hex()
    with guarded(job_id) as guard:
        return _run_head(job, job_id, guard)


def _run_head(job: JobDescription, job_id: str, guard: GuardLine) -> int:
    import asyncio  # here, and the head, because they take longer to load than the guard takes to start

    from paceline.launcher.head import Head

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(Head(job, job_id, guard).run())
    return _run_beside_running_loop(partial(Head, job, job_id, guard))


def _run_beside_running_loop(make_head: "Callable[[Callable[[Callable[[], object]], None]], Head]") -> int:
    """In a thread with a loop of its own; Ctrl-C, which reaches only the main thread, is passed on."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    interrupters: list[Callable[[], object]] = []
    with ThreadPoolExecutor(1) as pool:
        job_code = pool.submit(lambda: asyncio.run(make_head(interrupters.append).run()))
        while True:
            try:
                return job_code.result()
            except KeyboardInterrupt:
                for interrupt in interrupters:
                    interrupt()
