"""The guard process: ends the workers of a job when the launcher is gone, even after ``kill -9``.

    agent ── Appointed, GenerationBegins, WorkerStarted, WorkerEnded, …, Bye ──► pipe ──► guard (own session,
                                                                                       deaf to all but SIGKILL)
                                         end of file without `Bye`: SIGKILL to every process of its part of the job

Only the agent holds the writing end, so the end of file means that the agent is gone, however it went. The
parent-death signal cannot do this: it is bound to the thread that spawned, and misses grandchildren. Where the
guard was killed with the agent, workers appoint another one (``bootstrap/agent_line.py``). This program imports almost
nothing until it must act: it starts beside the workers and takes no time from them.
"""

import os
import signal
import sys

from paceline.leaving import exit_now

ORPHAN = "orphan"

_BYE = b'{"type":"Bye"}\n'
"""`guard_words.Bye` as a line, known without the codec."""

_LIMIT_SECONDS = 5.0


def main() -> None:
    """Runs the guard: ``python -P -m paceline.launcher.workers.guard``, reading standard input.

    With the argument ``orphan`` it is nobody's child: guards that workers appoint must not end each other.
    """
    if sys.argv[1:] == [ORPHAN] and os.fork() != 0:
        exit_now(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    lines = sys.stdin.buffer.readlines()
    if lines and lines[-1] != _BYE:  # none: the agent was gone before it had started anything
        _end_job(lines)


def _end_job(lines: list[bytes]) -> None:
    from paceline.launcher.workers.teardown import JobProcesses, Teardown
    from paceline.rendezvous.guard_words import Appointed, GenerationBegins, WorkerEnded, WorkerStarted, decode

    appointed, *words = map(decode, lines)
    assert isinstance(appointed, Appointed)
    processes = JobProcesses(appointed.job_id, appointed.agent_id)
    teardown = Teardown(processes)
    for word in words:
        match word:
            case GenerationBegins(generation):
                teardown.generation_begins(generation)
            case WorkerStarted(pid):
                processes.worker_started(pid)
            case WorkerEnded(pid):
                processes.worker_ended(pid)
    teardown.finish(_LIMIT_SECONDS)


if __name__ == "__main__":
    main()
