"""The agent of a host without the head: carries out the head's orders, and reports what happens.

WAITING ──Begin──► RUNNING ──Finish──► WAITING ──Over──► the exit code
   └───────── the line to the head ends: kill everything, 69 ──────────┘
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import TYPE_CHECKING

from paceline.errors import EXIT_UNAVAILABLE
from paceline.events.head_events import ClockMeasured, HostLost
from paceline.launcher.event_loop import in_background
from paceline.launcher.hosts.link import Link
from paceline.launcher.workers.address_check import Probe, look_for
from paceline.launcher.workers.crew import Crew, Heard
from paceline.rendezvous import channel
from paceline.rendezvous.agent_messages import (
    Begin,
    Examine,
    FindSnapshot,
    Finish,
    Finished,
    HostFacts,
    Interrupt,
    Kill,
    Look,
    Message,
    Over,
    Refused,
    Release,
    Replace,
    Seen,
    SnapshotFound,
    Spoke,
    Tell,
    Terminate,
    Unfit,
    WorkerEnded,
    Wrote,
)
from paceline.rendezvous.listener import Listener

if TYPE_CHECKING:
    from paceline.launcher.output.worker_output import OwnOutput

MakeCrew = Callable[[str, ExitStack], Crew]
"""Makes a crew of the job's name and the lifetimes of what the crew needs."""


class HostAgent:
    """Serves one head until the job is over or the head is gone.

    Args:
        loop: The running event loop.
        link: To the head; the agent has not said yet who it is, or the head has not answered.
        facts: Of this host.
        make_crew: Makes the crew of this host when the first generation begins.
        probe: Answers those who look for this host; closed when its workers begin.
        own_output: Shows what the workers write; None: somebody else does.
        takes_snapshots: Whether the job does, as far as it is known: a script may keep some of its own accord.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        link: Link,
        facts: HostFacts,
        make_crew: MakeCrew,
        probe: Probe | Listener,
        own_output: "OwnOutput | None" = None,
        takes_snapshots: bool = False,
    ) -> None:
        self._loop = loop
        self._link = link
        self._facts = facts
        self._make_crew = make_crew
        self._own_output = own_output
        self._probe = probe
        self._crew: Crew | None = None
        self._keys: dict[str, str] = {}
        """Those of a `Release` that has not come whole."""
        self._in_generation = False
        self.takes_snapshots = takes_snapshots
        self._lifetimes = ExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._code: asyncio.Future[int] = loop.create_future()
        self.lost_because: str | None = None
        """Why the head is gone; None: it is not, or has said that the job is over."""
        self.denied_because: str | None = None
        """Why the head will not have this agent."""

    async def run(self) -> int:
        """Serves; the exit code of the job. Nothing of it is left on this host."""
        self._link.attach(self.hear, self.lose)
        try:
            return await self._code
        finally:
            await self._end_crew()
            if self._crew is not None:
                self._crew.close()
            for task in self._tasks:
                task.cancel()
            self._lifetimes.close()

    def stop(self) -> None:
        """This agent has nothing more to do, and its head knows all that it has to say."""
        self._over(0)

    def interrupted(self, number: signal.Signals) -> None:
        """This agent was told to stop, so the head should stop the job."""
        self._link.send(Interrupt(number))
        if not self._in_generation:  # the head hears such a word only from within one
            # Nobody tells this to an agent beside one attached worker, which starts without them.
            from paceline.launcher.generations.decisions import exit_code_between
            from paceline.launcher.generations.report import stopped_text

            if self._own_output is not None:
                self._own_output.say([stopped_text(number)])
            self._over(exit_code_between(number, takes_snapshots=self.takes_snapshots))

    def report(self, report: Heard) -> None:
        """Passes on what the crew tells; what workers write is shown here where there is somebody to read it."""
        match report:
            case HostLost() | ClockMeasured():
                raise AssertionError(report)  # an agent is never lost to itself, nor is its clock another one
            case Wrote() if self._own_output is not None:
                self._own_output.feed(report.rank, report.stream, report.data, time.monotonic())
                return
            case Spoke(message=channel.KeepsSnapshots()):
                self.takes_snapshots = True
            case WorkerEnded(rank=rank, exit_code=code) if self._own_output is not None:
                report = WorkerEnded(rank, code, self._own_output.last_words(rank))
        self._link.send(report)
        if self._link.is_congested and isinstance(report, Wrote) and self._crew is not None:
            self._crew.hold_output(True)
            self._link.call_at_relief(self._release_output)

    def hear(self, message: Message) -> None:
        """The head said something."""
        match message:
            case Begin():
                self._begin(message)
            case Release(keys=keys, is_last=is_last) if self._crew is not None:
                self._keys |= keys
                if is_last:
                    whole, self._keys = self._keys, {}
                    self._crew.obey(Release(whole, is_last=True))
            case Replace() | Terminate() | Examine() | Kill() if self._crew is not None:
                if self._own_output is not None and isinstance(message, Terminate | Examine):
                    self._own_output.show_all()
                self._crew.obey(message)
            case Finish():
                self._do(self._finish())
            case FindSnapshot() | Look():
                self._do(self._answer(message))
            case Tell(lines=lines) if self._own_output is not None:
                self._own_output.say(lines)
            case Refused(message=reason, exit_code=code):
                self.denied_because = reason
                self._over(code)
            case Over(exit_code=code):
                self._over(code)

    def _begin(self, order: Begin) -> None:
        self._probe.close()
        self._in_generation = True
        try:
            self._start(order)
        except Exception as fault:
            self._give_up("cannot start its workers", fault)

    def _start(self, order: Begin) -> None:
        first = order.identities[0]
        if self._crew is None:
            self._crew = self._make_crew(first.job_id, self._lifetimes)
        if self._own_output is not None:
            self._own_output.begin(order.identities, self._facts.hostname)
        self._crew.begin(order, self.report)

    async def _finish(self) -> None:
        await self._end_crew()
        self._in_generation = False
        self._link.send(Finished())

    async def _end_crew(self) -> None:
        if self._crew is not None:
            await self._crew.finish()
        if self._own_output is not None:
            self._own_output.end(time.monotonic())

    async def _answer(self, question: FindSnapshot | Look) -> None:
        match question:
            case FindSnapshot(directory=directory):
                from paceline.launcher.existing_snapshots import newest_snapshot  # beside one attached: never asked

                self._link.send(SnapshotFound(await in_background(lambda: newest_snapshot(directory))))
            case Look(hostname=hostname, pid=pid, addresses=addresses, key=key):
                self._link.send(Seen(await look_for(hostname, pid, addresses, key)))

    def _do(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._did)

    def _did(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, Exception):
            self._give_up("cannot go on", fault)

    def _give_up(self, what: str, fault: Exception) -> None:
        """Tells the head, which would wait for this host for ever, and the user here if there is one."""
        reason = f"{what}: {fault}" if isinstance(fault, OSError) else f"{what}: {type(fault).__name__}: {fault}"
        if self._own_output is not None:
            self._own_output.say([f"paceline: this host {reason}."])
        self._link.send(Unfit(reason))

    def _release_output(self) -> None:
        if self._crew is not None:
            self._crew.hold_output(False)

    def _over(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)

    def lose(self, reason: str) -> None:
        """The head is gone; `reason` completes the sentence "host a …"."""
        self.lost_because = reason
        if self._crew is not None:
            self._crew.obey(Kill())
        self._over(EXIT_UNAVAILABLE)
