"""What a signal means to a head that has no workers at that moment."""

import asyncio
import os
import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.cluster.job_options import JobOptions
from paceline.events.head_events import Restarted
from paceline.events.worker_events import Event
from paceline.launcher import head as head_module
from paceline.launcher.generations.decisions import Cause, Hung, Outcome, WorkerFailed
from paceline.launcher.head import Head
from paceline.launcher.hosts.gathering import Gathering, Member
from paceline.launcher.hosts.host_facts import facts_of_this_host
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.crew import CrewListener
from paceline.rendezvous.agent_messages import Begin, Interface, Interrupt, WorkerEnded

LIMIT_SECONDS = 60.0
SNAPSHOTS = "memory://none"
KILLED = WorkerFailed(0, -9, None, ())


async def _none(directory: str) -> str:
    del directory
    return ""


class OneHost(Gathering):
    """A host that comes at once, or `gather`s for ever."""

    def __init__(self, job: JobDescription, *, comes: bool) -> None:
        crew: Any = SimpleNamespace(facts=facts_of_this_host(job), shows_own_output=False, newest_snapshot=_none)
        self._members = (Member(crew, 1, Interface("", "")),)
        self._comes = comes
        self.is_asked = asyncio.Event()
        self.code: int | None = None

    async def gather(self, generation: int) -> tuple[Member, ...]:
        self.is_asked.set()
        if not self._comes:
            await asyncio.sleep(LIMIT_SECONDS)
        return self._members

    def tell(self, lines: Any) -> None:
        pass

    def show_life(self) -> None:
        pass

    async def close(self, exit_code: int) -> None:
        self.code = exit_code


class HeadAlone(Head):
    """Without processes: each generation ends with `cause`, and the signal comes at a moment that is given."""

    def __init__(self, moment: str, number: signal.Signals, cause: Cause = KILLED, **options: Any) -> None:
        job = JobDescription(
            command=("true",), num_workers=1, environment=dict(os.environ), options=JobOptions(**options)
        )
        super().__init__(job, "job", self.way_to_hosts)
        self.job, self.moment, self.number, self.cause = job, moment, number, cause
        self._bus.subscribe(self.heard)

    def way_to_hosts(self, *_: Any) -> Gathering:
        hosts = OneHost(self.job, comes=self.moment != "gathering")
        if self.moment == "gathering":
            self.interrupter = asyncio.create_task(self.interrupt_when_asked(hosts))
        return hosts

    async def interrupt_when_asked(self, hosts: OneHost) -> None:
        await hosts.is_asked.wait()
        self._interrupt(self.number)

    async def _generation(self, *_: Any) -> Any:
        if self.moment == "last moments":
            self._interrupt(self.number)
        return Outcome(self.cause, ()), 3, []

    def heard(self, event: Event) -> None:
        if isinstance(event, Restarted) and self.moment == "pause":
            asyncio.get_running_loop().call_soon(self._interrupt, self.number)

    async def _agreed_seed(self, members: Any) -> int:
        if self.moment == "store":
            asyncio.get_running_loop().call_soon(self._interrupt, self.number)
        return await super()._agreed_seed(members)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.run(), LIMIT_SECONDS)


@pytest.mark.parametrize("moment", ["gathering", "pause", "last moments"])
@pytest.mark.parametrize(
    ("number", "is_kept", "code"),
    [(signal.SIGTERM, True, 75), (signal.SIGUSR1, True, 75), (signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)],
)
def test_a_preemption_between_two_lives_is_one(moment: str, number: signal.Signals, is_kept: bool, code: int) -> None:
    snapshots = SNAPSHOTS if is_kept else None
    head = HeadAlone(moment, number, max_restarts=5, snapshot_dir=snapshots)
    assert asyncio.run(head.ended()) == code


@pytest.mark.parametrize(
    ("moment", "line"),
    [
        ("gathering", "stopped by SIGTERM, before the workers started. [stopped]"),
        ("pause", "stopped by SIGTERM, before generation 2 started. [stopped]"),
        ("last moments", "no restart: the job was told to stop (SIGTERM). [no-restart]"),
    ],
)
def test_the_reason_is_seen_on_this_host_and_no_restart_is_counted_that_was_not_made(
    moment: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(HeadAlone(moment, signal.SIGTERM, max_restarts=5, snapshot_dir=SNAPSHOTS).ended())
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == f"paceline: {line}"
    assert "1 restart" not in said


def test_a_store_that_does_not_answer_makes_nobody_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network disk that is gone: only SIGKILL ended the job."""
    answers = threading.Event()
    monkeypatch.setattr(head_module, "seed_of", lambda *_: answers.wait())
    try:
        assert asyncio.run(HeadAlone("store", signal.SIGTERM, snapshot_dir=SNAPSHOTS).ended()) == 75
    finally:
        answers.set()


class EvictedHost(OneHost):
    """A host whose worker dies at once, and whose agent is told to stop while what is left of it is ended."""

    def __init__(self, job: JobDescription, number: signal.Signals) -> None:
        super().__init__(job, comes=True)
        self._crew: Any = self._members[0].crew
        self._crew.begin, self._crew.finish = self.begin, self.finish
        self.number, self.num_generations = number, 0

    def begin(self, order: Begin, listener: CrewListener) -> None:
        self.num_generations += 1
        self.listener = listener
        listener(WorkerEnded(0, -9))

    async def finish(self) -> None:
        self.listener(Interrupt(self.number))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_word_to_another_host_while_a_failure_ends_is_not_lost(number: signal.Signals, code: int) -> None:
    """The next generation began on the host that was being taken away."""
    job = JobDescription(
        command=("true",), num_workers=1, environment={}, options=JobOptions(max_restarts=5, snapshot_dir=SNAPSHOTS)
    )
    hosts = EvictedHost(job, number)

    head = Head(job, "job", lambda *_: hosts)
    assert asyncio.run(asyncio.wait_for(head.run(), LIMIT_SECONDS)) == code
    assert hosts.num_generations == 1
    assert hosts.code == code


def test_a_signal_after_the_last_restart_changes_nothing() -> None:
    head = HeadAlone("last moments", signal.SIGTERM, Hung((0,), 3, 5.0, ()), snapshot_dir=SNAPSHOTS)
    assert asyncio.run(head.ended()) == 69
