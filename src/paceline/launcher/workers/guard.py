"""The process that ends a job when its launcher is gone: nothing outlives even ``kill -9``.

    agent ── whose guard, "started 1234" "ended 1234" … "bye" ──► pipe ──► guard (own session, deaf to all but SIGKILL)
                                       end of file without "bye": SIGKILL to every process of its part of the job

Only the agent holds the writing end, so the end of file means that the agent is gone, however it went. The
parent-death signal cannot do this: it is bound to the thread that spawned, and misses grandchildren. This
program imports almost nothing until it must act: it starts beside the workers and takes no time from them.
"""

import signal
import sys

BYE = b"bye"
STARTED = b"started"
ENDED = b"ended"

_LIMIT_SECONDS = 5.0


def main() -> None:
    """Runs the guard: ``python -P -m paceline.launcher.workers.guard``, reading standard input."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    job_id, _, agent_id = sys.stdin.buffer.readline().strip().decode().partition(" ")
    if not agent_id:  # the agent was gone before it had started anything
        return
    workers: set[int] = set()
    for line in sys.stdin.buffer:
        word, _, number_text = line.strip().partition(b" ")
        if word == BYE:
            return
        if word == STARTED:
            workers.add(int(number_text))
        elif word == ENDED:
            workers.discard(int(number_text))
    _end_job(job_id, agent_id, workers)


def _end_job(job_id: str, agent_id: str, workers: set[int]) -> None:
    from paceline.launcher.workers.job_processes import JobProcesses
    from paceline.launcher.workers.teardown import Teardown

    processes = JobProcesses(job_id, agent_id)
    for pid in workers:
        processes.worker_started(pid)
    Teardown(processes).finish(_LIMIT_SECONDS)


if __name__ == "__main__":
    main()
