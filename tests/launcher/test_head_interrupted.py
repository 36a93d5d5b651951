"""What a signal means to a head that has no workers at that moment."""

import asyncio
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.launcher.generations.outcome import Cause, Hung, Outcome, WorkerFailed
from paceline.launcher.head import Head
from paceline.launcher.hosts.gathering import Gathering, Member
from paceline.launcher.hosts.host_facts import facts_of_this_host
from paceline.launcher.job import JobDescription, Snapshots
from paceline.rendezvous.generation_order import Interface

LIMIT_SECONDS = 30.0
SNAPSHOTS = Snapshots(directory="memory://none", every="10", keep=3)
KILLED = WorkerFailed(0, -9, None, ())


class OneHost(Gathering):
    """A host that comes at once, or `gather`s for ever."""

    def __init__(self, job: JobDescription, *, comes: bool) -> None:
        crew: Any = SimpleNamespace(facts=facts_of_this_host(job), shows_own_output=False)
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
        job = JobDescription(command=("true",), num_workers=1, environment=dict(os.environ), **options)
        super().__init__(job, "job", guard=None)  # type: ignore[arg-type]
        self.job, self.moment, self.number, self.cause = job, moment, number, cause

    def _gathering(self, *_: Any) -> Gathering:
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

    async def _pause(self, *arguments: Any) -> None:
        if self.moment == "pause":
            asyncio.get_running_loop().call_soon(self._interrupt, self.number)
        await super()._pause(*arguments)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.run(), LIMIT_SECONDS)


@pytest.mark.parametrize("moment", ["gathering", "pause", "last moments"])
@pytest.mark.parametrize(
    ("number", "is_kept", "code"),
    [(signal.SIGTERM, True, 75), (signal.SIGUSR1, True, 75), (signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)],
)
def test_a_preemption_between_two_lives_is_one(moment: str, number: signal.Signals, is_kept: bool, code: int) -> None:
    snapshots = SNAPSHOTS if is_kept else None
    head = HeadAlone(moment, number, max_restarts=5, snapshots=snapshots)
    assert asyncio.run(head.ended()) == code


def test_a_signal_after_the_last_restart_changes_nothing() -> None:
    head = HeadAlone("last moments", signal.SIGTERM, Hung((0,), 3, 5.0), snapshots=SNAPSHOTS)
    assert asyncio.run(head.ended()) == 69
