"""What an agent tells its head when it cannot do what it was told."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.cluster.job_options import JobOptions
from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Address, Task
from paceline.launcher.hosts import ways
from paceline.launcher.hosts.host_agent import HostAgent
from paceline.launcher.hosts.host_facts import facts_of_this_host
from paceline.launcher.hosts.ways import guarded_crew
from paceline.launcher.job import JobDescription
from paceline.launcher.output.worker_logs import WorkerLogs
from paceline.launcher.output.worker_output import OwnOutput
from paceline.rendezvous import channel
from paceline.rendezvous.agent_messages import Begin, Message, Spoke, Unfit

CLUSTER = {WORKER: (Address("127.0.0.1", 1), Address("127.0.0.1", 2))}
ORDER = Begin((WorkerIdentity(Task(WORKER, 1), 1, 2, 0, 1, 1, "ab12", 7),), CLUSTER, "", {})
JOB = JobDescription(command=("true",), num_workers=1, environment={})


class Line:
    """Takes what the agent says."""

    is_congested = False

    def __init__(self) -> None:
        self.said: list[Message] = []

    def send(self, message: Message) -> None:
        self.said.append(message)


class Nothing:
    """Stands in for what the agent closes, and for a screen."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def close(self) -> None: ...

    def name_ranks(self, names: dict[int, str]) -> None: ...

    def say(self, lines: list[str]) -> None:
        self.lines += lines


def said_at_the_beginning(log_dir: Path | None) -> tuple[list[Message], list[str]]:
    async def begin() -> tuple[list[Message], list[str]]:
        loop, line, screen = asyncio.get_running_loop(), Line(), Nothing()
        stubs: Any = (line, Nothing(), screen)
        with WorkerLogs(log_dir) as logs:
            own_output = OwnOutput(loop, stubs[2], logs)
            facts = facts_of_this_host(JOB)
            HostAgent(loop, stubs[0], facts, guarded_crew(loop, JOB, facts), stubs[1], own_output).hear(ORDER)
        return line.said, screen.lines

    return asyncio.run(begin())


def no_guard(fault: Exception) -> Callable[[str], object]:
    def guarded(job_id: str) -> object:
        raise fault

    return guarded


def test_a_log_file_that_cannot_be_opened_is_told_to_the_head_and_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was logged by the event loop alone, and the head waited for ever."""
    monkeypatch.setattr(ways, "guarded", lambda job_id: nullcontext(SimpleNamespace(agent_id="ab")))
    file = tmp_path / "ab12" / "generation-1" / "job_1.log"
    file.mkdir(parents=True)
    said, shown = said_at_the_beginning(tmp_path)
    assert said == [Unfit(f"cannot start its workers: [Errno 21] Is a directory: '{file}'")]
    assert shown == [f"paceline: this host cannot start its workers: [Errno 21] Is a directory: '{file}'."]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (BlockingIOError(11, "Resource temporarily unavailable"), "[Errno 11] Resource temporarily unavailable"),
        (ValueError("out of order"), "ValueError: out of order"),
    ],
)
def test_whatever_keeps_workers_from_starting_is_told(
    fault: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ways, "guarded", no_guard(fault))
    said, _ = said_at_the_beginning(None)
    assert said == [Unfit(f"cannot start its workers: {reason}")]


KEPT = JobOptions(snapshot_dir="/kept")


@pytest.mark.parametrize(
    ("options", "said", "number", "code"),
    [
        (KEPT, [], signal.SIGUSR1, 75),
        (KEPT, [], signal.SIGINT, 130),
        (JobOptions(), [channel.KeepsSnapshots()], signal.SIGTERM, 75),
        (JobOptions(), [channel.Joined()], signal.SIGTERM, 143),
    ],
)
def test_told_to_stop_between_generations_it_ends_as_its_head_does(
    options: JobOptions, said: list[channel.Message], number: signal.Signals, code: int
) -> None:
    """A scheduler puts a job back into the queue only if all its nodes end with 75, and the reason must be seen."""

    async def interrupted() -> tuple[int, list[str]]:
        stubs: Any = (Line(), Nothing(), Nothing())
        loop = asyncio.get_running_loop()
        with WorkerLogs(None) as logs:
            own_output = OwnOutput(loop, stubs[2], logs)
            crew, keeps = guarded_crew(loop, JOB, facts_of_this_host(JOB)), options.snapshot_dir is not None
            agent = HostAgent(loop, stubs[0], facts_of_this_host(JOB), crew, stubs[1], own_output, keeps)
            stubs[0].attach = lambda *callbacks: None
            for message in said:
                agent.report(Spoke(1, message))
            agent.interrupted(number)
            return await agent.run(), stubs[2].lines

    assert asyncio.run(interrupted()) == (
        code,
        [f"paceline: stopped by {number.name}, while no worker was running on this host. [stopped]"],
    )
