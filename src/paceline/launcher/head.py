"""The head of a job: from a `JobDescription` to an exit code.

    gather the hosts ─► orders (ranks, addresses, seed) ─► workers ─► supervise ─► report
         ▲                                                                  │
         └────────────── another generation, if the policy says so ─────────┘

The steps live in files of their own; this one only puts them in order. ``running.py`` comes before it, with the guard.
"""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TextIO, TypeVar

from paceline.cluster.options import Use
from paceline.cluster.spec import Role, Task
from paceline.errors import EXIT_CONFIGURATION, EXIT_PREEMPTED, EXIT_UNAVAILABLE, ConfigurationError
from paceline.events.bus import Bus
from paceline.events.head_events import JobBegan, Notice, Restarted
from paceline.events.json_lines import JsonLines
from paceline.events.worker_events import Event
from paceline.launcher.event_loop import in_background, interrupts
from paceline.launcher.existing_snapshots import resume_lines, seed_of
from paceline.launcher.generations import report
from paceline.launcher.generations.decisions import Outcome, exit_code_between
from paceline.launcher.generations.event_lines import event_lines, is_for_all_hosts
from paceline.launcher.generations.generation import Generation
from paceline.launcher.generations.ledger import Ledger
from paceline.launcher.generations.restarts import Finish, Restart, RestartBudget, RestartPolicy
from paceline.launcher.generations.supervision import Supervision
from paceline.launcher.hosts.gathering import Gathering, Member, NotGatheredError
from paceline.launcher.hosts.placement import Lineup, Station, generation_orders
from paceline.launcher.job import JobDescription
from paceline.launcher.live.live import program_text, shown_live
from paceline.launcher.output.screen import CHIEF, Screen
from paceline.launcher.output.text_stream import TextOutput
from paceline.launcher.output.usual_lines import asks_for_all
from paceline.launcher.output.worker_logs import WorkerLogs
from paceline.launcher.output.worker_output import WorkerOutput
from paceline.rendezvous.agent_messages import Begin

_FIRST_GENERATION = 1

Result = TypeVar("Result")


class Head:
    """Runs one job.

    Args:
        job: The job, checked.
        job_id: Its name.
        gathering: Makes the way to its hosts, from the event loop and from what prints a line for the user.
        words: Where the head's own words go; stderr without it.
    """

    def __init__(
        self,
        job: JobDescription,
        job_id: str,
        gathering: Callable[[asyncio.AbstractEventLoop, Callable[[str], None]], Gathering],
        words: TextIO | None = None,
    ) -> None:
        self._job = job
        self._job_id = job_id
        self._make_gathering = gathering
        self._words = sys.stderr if words is None else words
        self._seed = 0
        """Known when the hosts are: they may see snapshots of this job that go on."""
        self._takes_snapshots = job.options.snapshot_dir is not None
        self._supervision: Supervision | None = None
        self._generation_number = _FIRST_GENERATION
        """Of the one that lives, or is to begin next."""
        self._awaited: asyncio.Future[Any] | None = None
        """What a signal cuts short where there are no workers to stop."""
        self._signal: signal.Signals | None = None
        """What told this host, or within a generation another one, to stop."""
        self._hosts: Gathering | None = None
        self._bus = Bus()
        self._ledger = Ledger(self._bus.emit)

    async def run(self) -> int:
        """Runs the job; its exit code."""
        loop = asyncio.get_running_loop()
        with ExitStack() as lifetimes:
            logs = lifetimes.enter_context(WorkerLogs(self._job.options.log_dir, self._say))
            shows_all = asks_for_all(self._job.environment)
            live_rank = self._job.options.debug_rank or CHIEF
            screen = Screen(self._sink(sys.stdout), self._sink(self._words), shows_all=shows_all, live_rank=live_rank)
            gathering = self._hosts = self._make_gathering(loop, self._say)
            lifetimes.enter_context(interrupts(loop, self._interrupt))  # also while the sinks come to their end
            self._subscribe(lifetimes, screen, logs, gathering)
            code = EXIT_UNAVAILABLE
            try:
                code = await self._generations(loop, gathering, screen, logs)
            except NotGatheredError as fault:
                self._tell_all(fault.lines)
                code = fault.exit_code
            except (OSError, ConfigurationError) as fault:  # the user of this host reads it as the end of the command
                is_setting = isinstance(fault, ConfigurationError)
                said = str(fault) if is_setting else f"{fault}. [host-failed]"
                gathering.tell([f"paceline: host {socket.gethostname()} cannot run the job: {said}"])
                code = EXIT_CONFIGURATION if is_setting else EXIT_UNAVAILABLE
                raise
            except asyncio.CancelledError:
                assert self._signal is not None
                code = self._exit_code_of(self._signal)
                self._tell_all([report.stopped_text(self._signal, self._generation_number)])
            finally:
                self._ledger.job_ended(code)
                await gathering.close(code)
        return code

    def _subscribe(self, lifetimes: ExitStack, screen: Screen, logs: WorkerLogs, gathering: Gathering) -> None:
        """Connects the sinks of the job's events."""

        def show(event: Event) -> None:
            if lines := event_lines(event):
                screen.say(lines)
                logs.note(lines)
                if is_for_all_hosts(event):
                    gathering.tell(lines)

        if (path := self._job.options.events) is not None:
            self._bus.subscribe(lifetimes.enter_context(JsonLines(path, self._say)))
        self._bus.subscribe(self._ledger)
        self._bus.subscribe(show)
        live = shown_live(self._job, self._job_id, self._ledger.account, self._say)
        self._bus.subscribe(lifetimes.enter_context(live))
        if (folder := self._job.options.observe) is not None:
            from paceline.launcher.observation import observed  # most jobs are not, and should start quickly

            program = program_text(self._job)
            self._bus.subscribe(lifetimes.enter_context(observed(folder, self._job_id, program, self._say)))

    def _say(self, line: str) -> None:
        self._bus.emit(Notice((f"paceline: {line}",)))

    def _tell_all(self, lines: Sequence[str]) -> None:
        if lines:
            self._bus.emit(Notice(tuple(lines), is_for_all_hosts=True))

    def _sink(self, stream: TextIO) -> TextOutput:
        several_hosts = bool(self._job.hosts) or self._job.nodes is not None
        return TextOutput(stream, self._job.environment, self._show_life if several_hosts else None)

    def _show_life(self) -> None:
        if self._hosts is not None:
            self._hosts.show_life()

    async def _generations(
        self, loop: asyncio.AbstractEventLoop, gathering: Gathering, screen: Screen, logs: WorkerLogs
    ) -> int:
        options = self._job.options
        budget = RestartBudget(options.max_restarts, options.restart_window_seconds)
        policy = RestartPolicy(budget)
        while True:
            number = self._generation_number
            members = await self._unless_told(asyncio.ensure_future(gathering.gather(number)))
            if number == _FIRST_GENERATION:
                self._seed = await self._agreed_seed(members)
            lineup = Lineup(members, self._orders(members, number))
            logs.begin(self._job_id, number, [one for one, crew in lineup.processes() if not crew.shows_own_output])
            if number == _FIRST_GENERATION:
                self._bus.emit(JobBegan(self._job_id, sum(member.num_workers for member in members), self._seed))
                lines = lineup.opening_lines(self._job, self._job_id, self._seed)
                self._bus.emit(Notice(tuple(f"paceline: {line}" for line in lines)))
            outcome, step, lines = await self._generation(loop, lineup, screen, logs, budget)
            verdict = policy.after(outcome, step, time.monotonic())
            exit_code = outcome.exit_code
            if self._signal is not None and isinstance(verdict, Restart):  # in the last moments of what has died
                verdict = Finish(f"the job was told to stop ({self._signal.name})")
                exit_code = self._exit_code_of(self._signal)
            if isinstance(verdict, Finish):
                lines += [f"paceline: no restart: {verdict.reason}. [no-restart]"] if verdict.reason else []
            self._tell_all(lines)
            if isinstance(verdict, Finish):
                if outcome.cause is not None:
                    crews = [member.crew for member in members]
                    is_preempted = exit_code == EXIT_PREEMPTED
                    self._tell_all(await resume_lines(self._job, crews, is_preempted=is_preempted))
                return exit_code
            self._generation_number += 1
            self._bus.emit(Restarted(self._generation_number, verdict.pause_seconds))
            await self._unless_told(asyncio.ensure_future(asyncio.sleep(verdict.pause_seconds)))

    async def _agreed_seed(self, members: Sequence[Member]) -> int:
        facts = [member.crew.facts for member in members]
        if self._job.options.snapshot_dir is None:
            return seed_of(self._job, facts)
        return await self._unless_told(in_background(lambda: seed_of(self._job, facts)))

    async def _unless_told(self, work: "asyncio.Future[Result]") -> Result:
        """What `work` gives.

        Raises:
            CancelledError: a signal came first.
        """
        self._awaited = work
        try:
            result = await work
        finally:
            self._awaited = None
        if self._signal is not None:  # in the moment in which it was done
            raise asyncio.CancelledError
        return result

    async def _generation(
        self,
        loop: asyncio.AbstractEventLoop,
        lineup: Lineup,
        screen: Screen,
        logs: WorkerLogs,
        budget: RestartBudget,
    ) -> tuple[Outcome, int | None, list[str]]:
        screen.name_ranks(lineup.prefixes)
        outputs = {one.rank: WorkerOutput(one.rank, screen, logs.of(one.rank)) for one, _ in lineup.processes()}
        cast = self._cast(lineup.members)
        num_ranks = sum(role.in_world for _, role in cast)
        generation = Generation(
            num_workers=num_ranks,
            auxiliaries=cast[num_ranks:],
            budget=budget,
            start_timeout_seconds=self._job.start_timeout_seconds,
            now=time.monotonic(),
            takes_snapshots=self._takes_snapshots,
            hang_timeout_seconds=self._job.options.hang_timeout_seconds,
        )
        supervision = Supervision(
            loop,
            generation,
            lineup.crews,
            outputs,
            screen=screen,
            bus=self._bus,
        )
        self._supervision = supervision
        try:
            outcome = await supervision.run()
        finally:
            self._supervision = None
        self._takes_snapshots = generation.takes_snapshots
        self._signal = self._signal or supervision.told_by
        screen.close()
        return outcome, generation.step, report.report_lines(outcome, supervision.witnesses(), supervision.names)

    def _interrupt(self, number: signal.Signals) -> None:
        """Ctrl-C, or a scheduler's signal."""
        self._signal = number
        if self._supervision is not None:
            self._supervision.stop(number)
        elif self._awaited is not None:
            self._awaited.cancel()

    def _exit_code_of(self, number: signal.Signals) -> int:
        """Of a job that a signal has ended between two generations, or before the first one."""
        return exit_code_between(number, takes_snapshots=self._takes_snapshots)

    def _orders(self, members: Sequence[Member], generation: int) -> tuple[Begin, ...]:
        return generation_orders(
            [Station(member.crew.facts, member.num_workers, member.interface) for member in members],
            job_id=self._job_id,
            generation=generation,
            seed=self._seed,
            variables=self._job.options.to_variables(Use.WORKERS, Use.RANKS),
            cast=self._cast(members),
        )

    def _cast(self, members: Sequence[Member]) -> tuple[tuple[Task, Role], ...]:
        return self._job.cast(sum(member.num_workers for member in members))
