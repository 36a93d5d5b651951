"""The processes of a generation that stand beside its ranks, such as parameter servers and evaluators. Pure.

            ┌── a pause, from the second death in a row on ◄──┐
            ▼                                                 │ dies (replaceable with a restart left, sidecar)
    running ┴─ exits with 0 ─► ended     dies (fatal) ─► the generation stops        hangs: is ended, as if it had died
                                         dies without a restart left, too often in a row, or of a setting ─► stays dead:
                                                      the others go on; none of a replaceable role left ─► it stops

Ranks never wait for them, as they do for each other in a collective; so a death need not end them all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.cluster.spec import EVALUATOR, Policy, Role, Task
from paceline.errors import EXIT_CONFIGURATION
from paceline.events.head_events import StuckFound
from paceline.events.worker_events import FaultInjected, WorkerStuck
from paceline.launcher.generations.decisions import MAX_DEATHS, Action, RoleFailed, TellDeath, Terminate
from paceline.launcher.generations.restarts import RestartBudget
from paceline.launcher.generations.worker_state import WorkerState
from paceline.rendezvous.agent_messages import Replace
from paceline.rendezvous.channel import Failed, KilledFromOutside, Message, Stopped

STEADY_SECONDS = 60.0
"""A process that lived so long has not died in a row with the one before it."""

FIRST_PAUSE_SECONDS = 1.0

LAST_WORK_SECONDS = 600.0
"""How long an evaluator may take for the last snapshot, when all ranks have ended well."""


@dataclass(slots=True)
class _Auxiliary:
    rank: int
    task: Task
    policy: Policy
    state: WorkerState
    started_at: float
    num_deaths: int = 0
    """In a row."""
    start_at: float | None = None
    """When the process is started again; None: it runs, or has ended for good."""


class Auxiliaries:
    """Those of one generation.

    Args:
        cast: Task and role of each process; numbered on behind the ranks.
        first_rank: The number of the first one.
        now: The time at the start.
        budget: The restarts that are left to replaceable ones.
    """

    def __init__(self, cast: Sequence[tuple[Task, Role]], first_rank: int, now: float, budget: RestartBudget) -> None:
        self._over = False
        self._budget = budget
        self._given_up: dict[str, RoleFailed] = {}
        """By role, the first that was given up."""
        self._all = {
            rank: _Auxiliary(rank, task, role.policy, WorkerState(), now)
            for rank, (task, role) in enumerate(cast, first_rank)
        }

    @property
    def running(self) -> tuple[int, ...]:
        """Those that have neither ended nor gone."""
        return tuple(one.rank for one in self._all.values() if one.start_at is None and one.state.running)

    @property
    def deadline(self) -> float | None:
        """When one is to be started again; None: never."""
        return min((one.start_at for one in self._all.values() if one.start_at is not None), default=None)

    @property
    def with_last_work(self) -> tuple[str, ...]:
        """Those that have something to do when all ranks have ended: evaluators, with the last snapshot."""
        tasks = (self._all[rank].task for rank in self.running)
        return tuple(str(task) for task in tasks if task.type == EVALUATOR)

    def hear(self, rank: int, message: Message) -> list[Action]:
        """What a process says of its own end, or its agent of it; its steps, if it makes any, are none of the job."""
        one = self._all[rank]
        match message:
            case Failed():
                one.state.failed = message
            case FaultInjected() | KilledFromOutside():
                one.state.note(message)
            case Stopped() if one.policy is not Policy.SIDECAR:
                return self._end_stuck(one, "was stopped (SIGSTOP, or a debugger) for as long as --hang-timeout")
        return []

    def end(self, name: str, why: FaultInjected | WorkerStuck) -> list[Action]:
        """Ends the process called `name`, such as ``ps 0``, if it runs: for ``--chaos``, or because it hangs."""
        for one in self._all.values():
            if str(one.task) == name and one.start_at is None and one.state.running:
                if isinstance(why, WorkerStuck):
                    return self._end_stuck(one, f"made no step for {why.seconds:g} s (--hang-timeout)")
                one.state.note(why)
                return [Terminate((one.rank,))]
        return []

    def _end_stuck(self, one: _Auxiliary, reason: str) -> list[Action]:
        """What follows is that of any death."""
        return [] if self._over else [StuckFound(str(one.task), reason), Terminate((one.rank,))]

    def bury(self, rank: int, code: int, now: float) -> RoleFailed | list[Action]:
        """A process has ended: why the generation stops for that, or what is done about it."""
        one = self._all[rank]
        one.state.exit_code = code
        if code == 0 or self._over:
            return []
        one.num_deaths = 1 if now - one.started_at >= STEADY_SECONDS else one.num_deaths + 1
        end = one.state.end(rank)
        death = RoleFailed(one.task, end, one.num_deaths)
        if one.policy is Policy.FATAL:
            return death
        if one.policy is Policy.SIDECAR and code == EXIT_CONFIGURATION:
            return [_told(death, None)]
        is_replaceable = one.policy is Policy.REPLACEABLE
        if one.num_deaths >= MAX_DEATHS or (is_replaceable and not self._budget.take(now)):
            first = self._given_up.setdefault(one.task.type, death)
            return first if is_replaceable and self._none_left(one.task.type) else [_told(death, None)]
        pause_seconds = 0.0 if one.num_deaths == 1 else FIRST_PAUSE_SECONDS * 2 ** (one.num_deaths - 2)
        one.start_at = now + pause_seconds
        return [_told(death, pause_seconds)]

    def due(self, now: float) -> list[Action]:
        """Those that are to be started again."""
        late = [one for one in self._all.values() if one.start_at is not None and now >= one.start_at]
        for one in late:
            one.start_at, one.started_at, one.state = None, now, WorkerState()
        return [Replace(one.rank) for one in late]

    def stop(self) -> None:
        """The generation comes to its end: from now on a death means nothing."""
        self._over = True
        for one in self._all.values():
            one.start_at = None

    def _none_left(self, role: str) -> bool:
        """Whether no process of `role` runs, or is about to."""
        return not any(
            one.start_at is not None or one.state.running for one in self._all.values() if one.task.type == role
        )

    def lose(self, ranks: Iterable[int], now: float) -> bool:
        """These processes are gone with their host; whether the generation is to stop for that.

        A replaceable one can be started again only elsewhere, by the next generation: if that is not allowed, the
        others go on.
        """
        lost = [one for rank in ranks if (one := self._all.get(rank)) and (one.state.running or one.start_at)]
        for one in lost:
            one.state.gone, one.start_at = True, None
        if self._over:
            return False
        return any(
            one.policy is Policy.FATAL
            or (one.policy is Policy.REPLACEABLE and (self._budget.has_one(now) or self._none_left(one.task.type)))
            for one in lost
        )


def _told(death: RoleFailed, pause_seconds: float | None) -> TellDeath:
    return TellDeath(death.task, death.end, death.num_deaths, pause_seconds)
