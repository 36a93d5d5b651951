"""What an agent tells its head when it cannot do what it was told."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import Address
from paceline.launcher.hosts import host_agent
from paceline.launcher.hosts.host_agent import HostAgent
from paceline.launcher.hosts.host_facts import facts_of_this_host
from paceline.launcher.job import JobDescription, Snapshots
from paceline.launcher.output.own_output import OwnOutput
from paceline.rendezvous.agent_messages import Message, Unfit
from paceline.rendezvous.generation_order import Begin

ORDER = Begin((WorkerIdentity(1, 2, 0, 1, 1, "ab12", 7),), (Address("127.0.0.1", 1),) * 2, "", {})
JOB = JobDescription(command=("true",), num_workers=1, environment={})


class Line:
    """Takes what the agent says."""

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
        with ExitStack() as lifetimes:
            own_output = OwnOutput(loop, stubs[2], log_dir, lifetimes)
            HostAgent(loop, stubs[0], JOB, facts_of_this_host(JOB), own_output, stubs[1]).hear(ORDER)
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
    monkeypatch.setattr(host_agent, "guarded", lambda job_id: nullcontext(SimpleNamespace(agent_id="ab")))
    (tmp_path / "job_1.log").mkdir()
    said, shown = said_at_the_beginning(tmp_path)
    assert said == [Unfit(f"cannot start its workers: [Errno 21] Is a directory: '{tmp_path}/job_1.log'")]
    assert shown == [
        f"paceline: this host cannot start its workers: [Errno 21] Is a directory: '{tmp_path}/job_1.log'."
    ]


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
    monkeypatch.setattr(host_agent, "guarded", no_guard(fault))
    said, _ = said_at_the_beginning(None)
    assert said == [Unfit(f"cannot start its workers: {reason}")]


@pytest.mark.parametrize(
    ("snapshots", "number", "code"),
    [
        (Snapshots(directory="/kept", every=None, keep=None), signal.SIGUSR1, 75),
        (Snapshots(directory="/kept", every=None, keep=None), signal.SIGINT, 130),
        (None, signal.SIGTERM, 143),
    ],
)
def test_told_to_stop_between_generations_it_ends_as_its_head_does(
    snapshots: Snapshots | None, number: signal.Signals, code: int
) -> None:
    """A scheduler puts a job back into the queue only if all its nodes end with 75."""

    async def interrupted() -> int:
        stubs: Any = (Line(), Nothing())
        job = replace(JOB, snapshots=snapshots)
        agent = HostAgent(asyncio.get_running_loop(), stubs[0], job, facts_of_this_host(JOB), None, stubs[1])
        stubs[0].attach = lambda *callbacks: None
        agent.interrupted(number)
        return await agent.run()

    assert asyncio.run(interrupted()) == code
