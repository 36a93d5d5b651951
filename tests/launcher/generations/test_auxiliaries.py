"""What the death of a process outside of the world does to a generation, by the policy of its role."""

import signal
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.spec import ROLES, Policy, Role, Task, cast_of
from paceline.errors import EXIT_CONFIGURATION, EXIT_PREEMPTED
from paceline.events.head_events import HostLost, LastWorkBegan, PreemptionBegan, RankEnded
from paceline.events.worker_events import FaultInjected, StepDone, StepsAwaited, TrainingResumed, WorkerStuck
from paceline.launcher.generations.auxiliaries import FIRST_PAUSE_SECONDS, LAST_WORK_SECONDS, STEADY_SECONDS
from paceline.launcher.generations.deaths import Witness, outlived_lines
from paceline.launcher.generations.decisions import (
    MAX_DEATHS,
    Action,
    Announce,
    Done,
    Examine,
    Input,
    Interrupted,
    Outcome,
    Preemption,
    RoleFailed,
    Said,
    SignalReceived,
    TellDeath,
    Terminate,
    WorkerFailed,
)
from paceline.launcher.generations.event_lines import event_lines
from paceline.launcher.generations.generation import GRACE_SECONDS, LEAVING_SECONDS, LIMIT_SECONDS, Generation
from paceline.launcher.generations.names import Names
from paceline.launcher.generations.report import report_lines, stopping_text
from paceline.launcher.generations.restarts import Finish, Restart, RestartBudget, RestartPolicy
from paceline.rendezvous.agent_messages import Kill, Replace
from paceline.rendezvous.channel import Failed, KilledFromOutside, Stopped

REPLACEABLE, SIDECAR = (
    Role(name, policy, in_world=False) for name, policy in (("ps", Policy.REPLACEABLE), ("evaluator", Policy.SIDECAR))
)
FATAL = ROLES["ps"]
FAILED = Failed(exception="ValueError: bad", traceback="Traceback …\nValueError: bad\n", exit_code=3)
WITNESS = Witness("alpha", 7, ())


def beside_two_workers(
    *roles: Role,
    takes_snapshots: bool = False,
    max_restarts: int = 1000,
    hang_timeout_seconds: float | None = None,
) -> Generation:
    """The ranks are 0 and 1, the others are numbered from 2 on."""
    return Generation(
        num_workers=2,
        auxiliaries=cast_of(roles, 2)[2:],
        budget=RestartBudget(max_restarts),
        start_timeout_seconds=60.0,
        now=0.0,
        takes_snapshots=takes_snapshots,
        hang_timeout_seconds=hang_timeout_seconds,
    )


def play(group: Generation, *events: Input, now: float = 1.0) -> list[Action]:
    return [action for event in events for action in group.on(event, now)]


def outcome_of(actions: Sequence[Action]) -> Outcome:
    assert isinstance(actions[-1], Done), actions
    return actions[-1].outcome


def test_a_replaceable_process_that_dies_is_started_again_at_once_and_then_after_a_pause():
    group = beside_two_workers(REPLACEABLE)
    [told] = play(group, RankEnded(2, -9))
    assert isinstance(told, TellDeath)
    assert (told.task, told.end.exit_code, told.pause_seconds) == (Task("ps", 0), -9, 0.0)
    assert group.tick(1.0) == [Replace(2)]
    assert group.deadline is None
    [told] = play(group, RankEnded(2, -9))
    assert isinstance(told, TellDeath)
    assert told.pause_seconds == FIRST_PAUSE_SECONDS
    assert group.deadline == 1.0 + FIRST_PAUSE_SECONDS
    assert group.tick(1.0 + FIRST_PAUSE_SECONDS - 0.01) == []
    assert group.tick(1.0 + FIRST_PAUSE_SECONDS) == [Replace(2)]
    assert group.tick(5.0) == []


def test_without_restarts_left_the_others_go_on_and_the_last_of_a_role_ends_the_job():
    group = beside_two_workers(REPLACEABLE, REPLACEABLE, SIDECAR, max_restarts=1)
    [told] = play(group, RankEnded(2, -9))
    assert isinstance(told, TellDeath)
    assert group.tick(1.0) == [Replace(2)]
    [told] = play(group, RankEnded(3, 5))
    assert isinstance(told, TellDeath)
    assert told.pause_seconds is None
    assert outlived_lines(told, WITNESS)[-1] == (
        "paceline: ps 1 is not started again, as --max-restarts allows no more restarts; the others go on. [no-restart]"
    )
    [told] = play(group, RankEnded(4, 1))
    assert isinstance(told, TellDeath)
    assert told.pause_seconds == 0.0, "a sidecar comes back, whatever --max-restarts says"
    [announced, terminated] = play(group, RankEnded(2, -11))
    assert isinstance(announced, Announce)
    assert isinstance(announced.cause, RoleFailed)
    assert announced.cause.task == Task("ps", 1), "the first that was not started again"
    assert terminated == Terminate((0, 1))
    outcome = outcome_of(play(group, RankEnded(0, -15), RankEnded(1, -15)))
    assert outcome.exit_code == 5
    lines = report_lines(outcome, dict.fromkeys(range(5), WITNESS), Names())
    assert lines[-1] == "paceline: ps 1 (alpha) exited with code 5. [worker-failed]"


def test_restarts_of_one_process_and_of_all_count_alike():
    budget = RestartBudget(2)
    group = Generation(
        num_workers=1, auxiliaries=cast_of([REPLACEABLE], 1)[1:], budget=budget, start_timeout_seconds=60.0, now=0.0
    )
    play(group, RankEnded(1, -9))
    group.tick(1.0)
    outcome = outcome_of(play(group, RankEnded(0, 3), RankEnded(1, -9)))
    policy = RestartPolicy(budget)
    assert policy.after(outcome, step=1, now=2.0) == Restart(0.0)
    assert isinstance(policy.after(outcome, step=2, now=3.0), Finish)


@pytest.mark.parametrize(("role", "ends"), [(REPLACEABLE, True), (SIDECAR, False)])
def test_one_that_dies_in_a_row_is_given_up(role: Role, ends: bool):
    group = beside_two_workers(role)
    now, pauses = 0.0, []
    for _ in range(MAX_DEATHS - 1):
        [told] = play(group, Said(2, FAILED), RankEnded(2, 3), now=now)
        assert isinstance(told, TellDeath)
        assert told.pause_seconds is not None
        pauses.append(told.pause_seconds)
        now += told.pause_seconds
        assert group.tick(now) == [Replace(2)]
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0]
    actions = play(group, RankEnded(2, -11), now=now)
    if not ends:
        [told] = actions
        assert isinstance(told, TellDeath)
        assert told.pause_seconds is None
        assert "has died 6 times in a row" in outlived_lines(told, WITNESS)[-1]
        assert outcome_of(play(group, RankEnded(0, 0), RankEnded(1, 0))).exit_code == 0
        return
    [announced, told] = actions
    assert isinstance(announced, Announce)
    assert isinstance(announced.cause, RoleFailed)
    assert told == Terminate((0, 1))
    outcome = outcome_of(play(group, RankEnded(0, -15), RankEnded(1, -9)))
    assert outcome.exit_code == 128 + 11
    assert RestartPolicy(RestartBudget(3)).after(outcome, step=None, now=0.0) == Finish("")
    lines = report_lines(outcome, dict.fromkeys(range(3), WITNESS), Names())
    assert "paceline: ps 0 (alpha) was killed by signal 11 (SIGSEGV). [worker-failed]" in lines
    assert lines[-1].startswith("paceline: ps 0 has died 6 times in a row, each time less than 60 s after its start")
    assert lines[-1].endswith("and the job ends. [crash-loop]")


def test_one_that_lived_long_has_not_died_in_a_row():
    group = beside_two_workers(REPLACEABLE)
    now = 0.0
    for _ in range(2 * MAX_DEATHS):
        now += STEADY_SECONDS
        [told] = play(group, RankEnded(2, 1), now=now)
        assert isinstance(told, TellDeath)
        assert told.pause_seconds == 0.0
        assert group.tick(now) == [Replace(2)]


def test_the_death_of_a_fatal_one_is_the_jobs_and_may_be_followed_by_a_restart():
    group = beside_two_workers(FATAL)
    [announced, told] = play(group, Said(2, FAILED), RankEnded(2, 3))
    assert isinstance(announced, Announce)
    assert stopping_text(announced.cause, 2, Names()) == "ps 0 failed; stopping the job"
    assert told == Terminate((0, 1))
    outcome = outcome_of(play(group, RankEnded(0, -15), RankEnded(1, -15)))
    assert outcome.exit_code == 3
    assert RestartPolicy(RestartBudget(1)).after(outcome, step=4, now=0.0) == Restart(0.0)
    lines = report_lines(outcome, dict.fromkeys(range(3), WITNESS), Names())
    assert lines[0].endswith("because ps 0 failed")
    assert lines[-1] == "paceline: ps 0 (alpha): ValueError: bad [worker-failed]"


@pytest.mark.parametrize("role", [FATAL, REPLACEABLE, SIDECAR])
def test_one_that_ends_with_0_has_done_its_work(role: Role):
    group = beside_two_workers(role)
    assert play(group, RankEnded(2, 0)) == []
    assert group.deadline is None
    assert outcome_of(play(group, RankEnded(0, 0), RankEnded(1, 0))).exit_code == 0


def test_what_stands_beside_the_ranks_ends_after_them():
    group = beside_two_workers(FATAL, REPLACEABLE, SIDECAR)
    play(group, RankEnded(3, -9), RankEnded(0, 0))
    # Nobody starts the third one again; the evaluator may have a snapshot to evaluate.
    ended = play(group, RankEnded(1, 0), now=1.5)
    assert ended == [Terminate((2, 4)), LastWorkBegan(("evaluator 0",), LAST_WORK_SECONDS)]
    assert group.tick(1.5 + LAST_WORK_SECONDS) == []
    assert group.tick(1.5 + LAST_WORK_SECONDS + GRACE_SECONDS) == [Kill()]
    assert play(group, RankEnded(2, -9), now=4.0) == []
    assert outcome_of(play(group, RankEnded(4, 1), now=4.0)) == Outcome(None, outcome_of_workers())


@pytest.mark.parametrize("code", [5, EXIT_PREEMPTED])
def test_an_evaluator_is_not_waited_for_after_a_failure(code: int):
    group = beside_two_workers(SIDECAR, takes_snapshots=True)
    actions = play(group, RankEnded(0, code), RankEnded(1, code))
    assert not any(isinstance(action, LastWorkBegan) for action in actions)
    assert Kill() in group.tick(1.0 + GRACE_SECONDS)


def test_an_evaluator_that_another_start_would_end_again_is_left_dead():
    group = beside_two_workers(SIDECAR)
    [told] = play(group, RankEnded(2, EXIT_CONFIGURATION))
    assert isinstance(told, TellDeath)
    assert outlived_lines(told, WITNESS)[-1] == (
        "paceline: evaluator 0 is not started again, because it would fail again; the others go on without it. "
        "[evaluator]"
    )
    assert group.deadline is None
    assert outcome_of(play(group, RankEnded(0, 0), RankEnded(1, 0))).exit_code == 0


def outcome_of_workers() -> tuple:
    return outcome_of(play(beside_two_workers(), RankEnded(0, 0), RankEnded(1, 0))).workers


def test_one_that_survives_everything_does_not_keep_a_job_that_is_done():
    group = beside_two_workers(REPLACEABLE)
    play(group, RankEnded(0, 0), RankEnded(1, 0), now=1.0)
    assert group.tick(1.0 + LIMIT_SECONDS)[-1] == Done(Outcome(None, outcome_of_workers()))


def test_an_impatient_user_ends_what_stands_beside_the_ranks_sooner():
    group = beside_two_workers(REPLACEABLE)
    play(group, RankEnded(0, 0), RankEnded(1, 0))
    assert play(group, SignalReceived(signal.SIGPIPE)) == []
    assert play(group, SignalReceived(signal.SIGTERM, is_relayed=True)) == []
    assert play(group, SignalReceived(signal.SIGINT)) == [Kill()]
    assert outcome_of(play(group, RankEnded(2, -9))).exit_code == 0


def test_a_worker_that_fails_takes_all_with_it_and_nobody_is_replaced():
    group = beside_two_workers(REPLACEABLE, REPLACEABLE)
    play(group, RankEnded(2, -9))
    assert play(group, RankEnded(0, 5)) == [Announce(WorkerFailed(0, 5, None, ())), Terminate((1, 3))]
    outcome_of(play(group, RankEnded(3, -15), RankEnded(1, -15)))


def test_an_interrupt_in_a_pause_ends_it():
    group = beside_two_workers(REPLACEABLE)
    play(group, RankEnded(2, 1))
    assert play(group, SignalReceived(signal.SIGINT)) == [Announce(Interrupted(signal.SIGINT)), Terminate((0, 1))]
    assert group.tick(1.0) == []
    assert outcome_of(play(group, RankEnded(0, -2), RankEnded(1, -2))).exit_code == 130


@pytest.mark.parametrize("role", [FATAL, REPLACEABLE, SIDECAR])
def test_ranks_that_leave_still_have_what_stands_beside_them(role: Role):
    group = beside_two_workers(role, role, takes_snapshots=True)
    assert play(group, SignalReceived(signal.SIGTERM)) == [Terminate((0, 1)), PreemptionBegan()]
    assert play(group, RankEnded(2, -15), RankEnded(0, 75)) == []  # a scheduler may have told it, too
    assert play(group, RankEnded(1, 75)) == [Terminate((3,))]
    outcome = outcome_of(play(group, RankEnded(3, -15)))
    assert (outcome.cause, outcome.exit_code) == (Preemption(None), 75)


def test_a_fatal_one_that_a_scheduler_ends_makes_all_leave():
    group = beside_two_workers(FATAL, takes_snapshots=True)
    assert play(group, RankEnded(2, -15)) == [Terminate((0, 1)), PreemptionBegan()]
    assert outcome_of(play(group, RankEnded(0, 75), RankEnded(1, 75))).exit_code == 75


def test_ranks_that_cannot_leave_are_ended_with_the_others():
    group = beside_two_workers(REPLACEABLE, takes_snapshots=True)
    play(group, SignalReceived(signal.SIGTERM), now=1.0)
    actions = group.tick(1.0 + LEAVING_SECONDS)
    assert actions[-1] == Terminate((0, 1, 2))
    assert outcome_of(play(group, RankEnded(0, 75), RankEnded(1, -15), RankEnded(2, -15), now=11.0)).exit_code == 75


@pytest.mark.parametrize(("role", "ends"), [(FATAL, True), (REPLACEABLE, True), (SIDECAR, False)])
def test_a_host_on_which_only_such_a_process_ran(role: Role, ends: bool):
    group = beside_two_workers(role)
    actions = play(group, HostLost((2,), "b", "is silent"))
    assert actions == ([Announce(HostLost((), "b", "is silent")), Terminate((0, 1))] if ends else [])
    outcome = outcome_of(play(group, RankEnded(0, 0), RankEnded(1, 0)))
    assert outcome.exit_code == (69 if ends else 0)
    lines = report_lines(outcome, dict.fromkeys(range(3), WITNESS), Names())
    assert lines[-1:] == (["paceline: host b is silent. [host-lost]"] if ends else [])


def test_without_restarts_left_a_lost_host_takes_only_its_own_processes():
    group = beside_two_workers(REPLACEABLE, REPLACEABLE, max_restarts=0)
    assert play(group, HostLost((2,), "b", "is silent")) == []
    actions = play(group, HostLost((3,), "c", "is silent"))
    assert actions == [Announce(HostLost((), "c", "is silent")), Terminate((0, 1))], "none of the role is left"


def test_steps_of_such_a_process_are_none_of_the_jobs():
    group = beside_two_workers(SIDECAR)
    assert play(group, Said(2, StepDone(2, 9, 0)), Said(2, TrainingResumed(2, 8, 0, 2, "s"))) == []
    assert group.step is None


def test_chaos_ends_a_process_that_serves_and_is_named_as_the_cause():
    group = beside_two_workers(REPLACEABLE)
    struck = FaultInjected(0, "kill:ps=0,step=5,generation=1", "ps 0")
    assert play(group, Said(0, struck)) == [Terminate((2,))]
    [told] = play(group, RankEnded(2, -9))
    assert isinstance(told, TellDeath)
    assert "--chaos injected this fault: kill:ps=0,step=5,generation=1." in outlived_lines(told, WITNESS)[0]
    assert play(group, Said(0, struck)) == [], "it does not run at the moment"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Said(4, Stopped()), "was stopped (SIGSTOP, or a debugger) for as long as --hang-timeout"),
        (Said(0, WorkerStuck(0, "ps 1", 5.0)), "made no step for 5 s (--hang-timeout)"),
    ],
)
def test_one_that_hangs_is_ended_as_if_it_had_died(said: Said, reason: str):
    group = beside_two_workers(SIDECAR, REPLACEABLE, REPLACEABLE)
    [found, terminate] = play(group, said)
    assert terminate == Terminate((4,)), "the evaluator, number 2, hangs as it likes"
    assert event_lines(found) == [f"paceline: ps 1 {reason}; ending it. [hang]"]
    [told] = play(group, RankEnded(4, -9))
    assert isinstance(told, TellDeath)
    assert group.tick(1.0) == [Replace(4)]
    assert play(group, Said(2, Stopped())) == []
    play(group, RankEnded(0, 3))
    assert play(group, Said(4, Stopped())) == [], "all are being ended anyway"


def test_a_chief_that_waits_for_workers_has_not_hung():
    group = beside_two_workers(REPLACEABLE, hang_timeout_seconds=10.0)
    for rank in (0, 1):
        group.on(Said(rank, StepDone(rank, 3, 0)), 100.0)
    for rank in (0, 1):
        group.on(Said(rank, StepsAwaited(rank)), 109.0)
    assert group.deadline == 119.0
    assert group.tick(119.0) == [Examine((0, 1), 10.0)]


def test_what_the_kernel_says_is_told():
    [told] = play(beside_two_workers(REPLACEABLE), Said(2, KilledFromOutside("yes")), RankEnded(2, -9))
    assert isinstance(told, TellDeath)
    first, second = outlived_lines(told, WITNESS)
    assert first.startswith("paceline: ps 0 (alpha) was killed by signal 9 (SIGKILL). ")
    assert first.endswith("[out-of-memory]")
    assert second == "paceline: ps 0 is started again; the others go on"


class Machine:
    """Processes as they are on a machine: one lives or not, and ends when it is killed."""

    def __init__(self, roles: Sequence[Role], *, takes_snapshots: bool) -> None:
        self.roles = roles
        self.group = beside_two_workers(*roles, takes_snapshots=takes_snapshots)
        self.alive = set(range(2 + len(roles)))
        self.told: set[int] = set()
        self.actions: list[Action] = []
        self.now = 0.0

    def is_done(self) -> bool:
        return any(isinstance(action, Done) for action in self.actions)

    def do(self, actions: Sequence[Action]) -> None:
        assert not (actions and self.is_done()), "nothing follows the end"
        self.actions += actions
        for action in actions:
            match action:
                case Replace(rank=rank):
                    assert rank not in self.alive, "two live processes of one identity"
                    assert rank >= 2, "a rank is never started alone"
                    self.alive.add(rank)
                case Terminate(ranks=ranks):
                    self.told |= set(ranks) & self.alive
                case Kill():
                    self.told |= self.alive

    def end(self, rank: int, code: int) -> None:
        if rank in self.alive:
            self.alive.discard(rank)
            self.do(self.group.on(RankEnded(rank, code), self.now))

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.group.deadline) is not None and due <= until:
            self.now = max(self.now, due)
            self.do(self.group.tick(self.now))
        self.now = until


ROLE_LISTS = st.lists(st.sampled_from([FATAL, REPLACEABLE, SIDECAR]), min_size=1, max_size=4)
DEATHS = st.tuples(st.just("dies"), st.integers(2, 5), st.sampled_from([0, 1, 3, -9, -15, 75]))
WAITS = st.tuples(st.just("waits"), st.just(0), st.floats(0.0, 40.0))
ENDS = st.tuples(st.just("dies"), st.integers(0, 1), st.sampled_from([0, 0, 1, -9, 75]))
SIGNALS = st.tuples(st.just("signal"), st.just(0), st.sampled_from([signal.SIGTERM, signal.SIGINT, signal.SIGPIPE]))
LOSSES = st.tuples(st.just("lost"), st.integers(0, 5), st.just(0))


@given(ROLE_LISTS, st.lists(DEATHS | WAITS | ENDS | SIGNALS | LOSSES, max_size=30), st.booleans())
def test_any_order_of_events_comes_to_an_end_with_one_process_for_each_identity(roles, happens, takes_snapshots):
    machine = Machine(roles, takes_snapshots=takes_snapshots)
    for kind, rank, value in happens:
        if machine.is_done():
            break
        if kind == "dies":
            machine.end(rank, value)
        elif kind == "waits":
            machine.wait(value)
        elif kind == "signal":
            machine.do(machine.group.on(SignalReceived(value), machine.now))
        elif rank in machine.alive:
            machine.alive.discard(rank)
            machine.do(machine.group.on(HostLost((rank,), "b", "is silent"), machine.now))
    for rank in (0, 1):  # at the latest, the workers have done their work
        machine.end(rank, 0)
    machine.wait(LEAVING_SECONDS + LIMIT_SECONDS + LAST_WORK_SECONDS)  # processes that even SIGKILL does not end
    assert machine.is_done()
    assert machine.group.deadline is None


@given(
    st.lists(st.sampled_from([REPLACEABLE, SIDECAR]), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(2, 5), st.sampled_from([1, 3, -9, -11]), st.floats(0.0, 100.0)), max_size=30),
)
def test_deaths_that_are_not_in_a_row_never_stop_the_ranks(roles, deaths):
    machine = Machine(roles, takes_snapshots=False)
    started_at = dict.fromkeys(machine.alive, 0.0)
    for rank, code, seconds in deaths:
        machine.wait(seconds)
        if rank in machine.alive:
            if machine.now - started_at[rank] < STEADY_SECONDS:
                machine.wait(STEADY_SECONDS + 1)  # 60 s after a float may be a little less
            machine.end(rank, code)
            machine.wait(FIRST_PAUSE_SECONDS)
            assert rank in machine.alive, "it came back"
            started_at[rank] = machine.now
    assert not any(isinstance(action, Announce | Terminate | Kill | Done) for action in machine.actions)
    machine.end(0, 0)
    machine.end(1, 0)
    assert machine.told == machine.alive
    for rank in tuple(machine.alive):
        machine.end(rank, -15)
    assert outcome_of(machine.actions).exit_code == 0


@given(st.lists(st.tuples(st.integers(2, 5), st.sampled_from([1, -9])), max_size=40))
def test_no_number_of_deaths_of_a_sidecar_stops_the_ranks(deaths):
    machine = Machine([SIDECAR] * 4, takes_snapshots=True)
    for rank, code in deaths:
        machine.end(rank, code)
        machine.wait(16.0)
    assert not any(isinstance(action, Announce | Terminate | Kill | Done) for action in machine.actions)
