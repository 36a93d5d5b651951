"""Every decision of the launcher, with a clock that is only a number."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.events.head_events import HostLost, PreemptionBegan, RankEnded, RanksWaiting
from paceline.events.worker_events import FitEnded, Preempted, StepDone, TraceBegan
from paceline.launcher.generations.decisions import (
    Action,
    Announce,
    Done,
    Examine,
    GroupNotFormed,
    Hung,
    Input,
    Interrupted,
    Outcome,
    Preemption,
    Said,
    SignalReceived,
    Terminate,
    WorkerFailed,
    WorkerLeft,
)
from paceline.launcher.generations.generation import GRACE_SECONDS, LEAVING_SECONDS, LIMIT_SECONDS, Generation
from paceline.launcher.generations.hang import STACKS_SECONDS, WAITING_INTERVAL_SECONDS
from paceline.launcher.generations.vanished import ANSWER_SECONDS
from paceline.rendezvous.agent_messages import Kill
from paceline.rendezvous.channel import (
    ALL_RANKS,
    Failed,
    Finishing,
    Joined,
    Joining,
    KeepsSnapshots,
    Left,
    Message,
    Stopped,
    Whereabouts,
)

FAILED = Failed(exception="ValueError: bad", traceback="Traceback …\nValueError: bad\n", exit_code=1)


def generation(num_workers: int = 3) -> Generation:
    return Generation(num_workers=num_workers, start_timeout_seconds=60.0, now=0.0)


def play(group: Generation, *events: Input, now: float = 1.0) -> list[Action]:
    return [action for event in events for action in group.on(event, now)]


def outcome_of(actions: list[Action]) -> Outcome:
    assert isinstance(actions[-1], Done), actions
    return actions[-1].outcome


def test_all_workers_exit_with_0():
    outcome = outcome_of(play(generation(2), RankEnded(1, 0), RankEnded(0, 0)))
    assert outcome.exit_code == 0
    assert outcome.cause is None


def test_a_normal_life_needs_no_action_before_the_end():
    group = generation(2)
    lives = [Said(0, Joining()), Said(1, Joining()), Said(0, Joined()), Said(1, Joined())]
    ends = [Said(rank, message) for message in (Finishing(), Left()) for rank in range(2)]
    assert play(group, *lives, *ends, RankEnded(0, 0)) == []
    assert group.deadline is None
    assert outcome_of(group.on(RankEnded(1, 0), 9.0)).exit_code == 0


def test_the_first_failure_is_the_cause_and_stops_the_others():
    group = generation()
    cause = WorkerFailed(rank=2, exit_code=7, failed=None, waiting=())
    assert play(group, RankEnded(2, 7)) == [Announce(cause), Terminate((0, 1))]
    assert play(group, Said(0, FAILED), RankEnded(0, 1)) == []
    outcome = outcome_of(play(group, RankEnded(1, -signal.SIGKILL)))
    assert outcome.cause == cause
    assert outcome.exit_code == 7
    assert [end.ended_before_stop for end in outcome.workers] == [False, False, True]
    assert outcome.workers[0].failed == FAILED


def test_a_reported_exception_stops_the_others_before_the_process_has_ended():
    group = generation(2)
    actions = play(group, Said(1, FAILED))
    assert actions == [Announce(WorkerFailed(1, 1, FAILED, ())), Terminate((0,))]
    outcome = outcome_of(play(group, RankEnded(0, -15), RankEnded(1, 1)))
    assert outcome.cause == WorkerFailed(1, 1, FAILED, ())


def test_the_message_has_the_last_word_about_the_exit_code():
    group = generation(1)
    outcome = outcome_of(play(group, Said(0, Failed("ConfigurationError", "", 78)), RankEnded(0, 1)))
    assert outcome.exit_code == 78


def test_a_failure_never_exits_with_0():
    assert outcome_of(play(generation(1), Said(0, Failed("odd", "", 0)), RankEnded(0, 0))).exit_code == 1


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (-9, 137), (-11, 139), (255, 255)])
def test_exit_codes_of_sudden_ends(code: int, expected: int):
    assert outcome_of(play(generation(1), RankEnded(0, code))).exit_code == expected


def test_the_grace_ends_in_a_kill_and_then_in_giving_up():
    group = generation(2)
    play(group, RankEnded(0, 3), now=10.0)
    assert group.deadline == 10.0 + GRACE_SECONDS
    assert group.tick(10.0 + GRACE_SECONDS - 0.01) == []
    assert group.tick(10.0 + GRACE_SECONDS) == [Kill()]
    assert group.deadline == 10.0 + LIMIT_SECONDS
    outcome = outcome_of(group.tick(10.0 + LIMIT_SECONDS))
    assert outcome.exit_code == 3
    assert outcome.workers[1].exit_code is None
    assert group.deadline is None
    assert group.on(RankEnded(1, -9), 20.0) == []


def test_everything_is_stopped_within_five_seconds():
    assert LIMIT_SECONDS + 1.0 <= 5.0  # the last survey and the last output take half a second each at most


@pytest.mark.parametrize("order", ["leaves first", "waits first"])
def test_a_rank_that_exits_before_it_joined_ends_the_job(order: str):
    group = generation(2)
    events: list[Input] = [RankEnded(1, 0), Said(0, Joining())]
    actions = play(group, *(events if order == "leaves first" else reversed(events)))
    assert actions == [Announce(WorkerLeft(1, (0,))), Terminate((0,))]
    assert outcome_of(play(group, RankEnded(0, -15))).exit_code == 69


def test_a_rank_that_exits_while_joining_ends_the_job_too():
    group = generation(2)
    actions = play(group, Said(0, Joining()), Said(1, Joining()), Said(0, Joined()), RankEnded(1, 0))
    assert actions == [Announce(WorkerLeft(1, (0,))), Terminate((0,))]


def test_a_failure_before_joining_keeps_its_own_code_and_names_who_waited():
    group = generation(3)
    actions = play(group, Said(0, Joining()), Said(2, Joining()), RankEnded(1, 3))
    assert actions[0] == Announce(WorkerFailed(1, 3, None, (0, 2)))
    assert outcome_of(play(group, RankEnded(0, -15), RankEnded(2, -15))).exit_code == 3


def test_a_joined_rank_that_has_left_may_end_before_the_others():
    group = generation(2)
    play(group, Said(0, Joining()), Said(1, Joining()), Said(0, Joined()), Said(1, Joined()))
    assert play(group, Said(1, Finishing()), Said(1, Left()), RankEnded(1, 0)) == []
    assert group.deadline is None


def test_a_living_rank_that_has_not_joined_is_waited_for_without_end_and_named():
    group = generation(3)
    play(group, Said(0, Joining()), Said(2, Joining()), now=5.0)
    told = []
    now = 5.0
    while now < 600.0:
        assert group.deadline is not None
        now = group.deadline
        told += group.tick(now)
    assert told[0] == RanksWaiting((0, 2), (1,), 5.0 + WAITING_INTERVAL_SECONDS)
    assert len(told) == 60
    assert play(group, Said(1, Joining()), now=600.0) == []


def test_a_group_that_all_asked_for_must_stand_in_time():
    group = generation(2)
    play(group, Said(0, Joining()), now=5.0)
    play(group, Said(1, Joining()), now=20.0)
    play(group, Said(0, Joined()), now=21.0)
    assert group.deadline == 80.0
    actions = group.tick(80.0)
    assert actions == [Announce(GroupNotFormed((1,), 60.0)), Terminate((0, 1))]
    assert outcome_of(play(group, RankEnded(0, -15), RankEnded(1, -15))).exit_code == 69


def test_a_group_that_stands_has_no_deadline():
    group = generation(2)
    play(group, Said(0, Joining()), Said(1, Joining()), Said(1, Joined()), Said(0, Joined()))
    assert group.deadline is None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_everybody(number: signal.Signals, code: int):
    group = generation(2)
    assert play(group, SignalReceived(number)) == [Announce(Interrupted(number)), Terminate((0, 1))]
    assert play(group, SignalReceived(number)) == [Kill()]
    assert outcome_of(play(group, RankEnded(0, -15), RankEnded(1, -9))).exit_code == code


def test_an_interrupt_while_stopping_kills_at_once_and_keeps_the_cause():
    group = generation(2)
    play(group, RankEnded(0, 3))
    assert play(group, SignalReceived(signal.SIGINT)) == [Kill()]
    assert outcome_of(play(group, RankEnded(1, -9))).exit_code == 3


EVENTS = st.one_of(
    st.builds(Said, st.integers(0, 2), st.sampled_from([Joining(), Joined(), Finishing(), FAILED, Preempted(0, 3)])),
    st.builds(SignalReceived, st.sampled_from([signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE])),
    st.none(),  # time passes until the next deadline
)


@given(
    st.lists(EVENTS, max_size=20),
    st.permutations([0, 1, 2]),
    st.lists(st.integers(-15, 3) | st.just(75), min_size=3, max_size=3),
    st.booleans(),
)
def test_whatever_happens_there_is_one_end_and_it_is_told_truly(events, order, codes, takes_snapshots):
    group = Generation(num_workers=3, start_timeout_seconds=60.0, now=0.0, takes_snapshots=takes_snapshots)
    now = 0.0
    actions: list[Action] = []
    for event in events:
        now += 1.0
        if event is not None:
            actions += group.on(event, now)
        elif group.deadline is not None:
            now = max(now, group.deadline)
            actions += group.tick(now)
    for rank in order:
        actions += group.on(RankEnded(rank, codes[rank]), now)
    ends = [action for action in actions if isinstance(action, Done)]
    assert len(ends) == 1
    assert actions[-1] is ends[0]
    announced = [action.cause for action in actions if isinstance(action, Announce)]
    assert len([cause for cause in announced if cause != Interrupted(signal.SIGPIPE)]) <= 1
    assert Interrupted(signal.SIGPIPE) not in announced[1:]
    assert (ends[0].outcome.exit_code == 0) == (ends[0].outcome.cause is None)
    assert group.deadline is None


def kept_generation(num_workers: int = 2, **options: float) -> Generation:
    return Generation(num_workers=num_workers, start_timeout_seconds=60.0, now=0.0, takes_snapshots=True, **options)


def test_a_preempted_job_leaves_by_itself_with_75():
    group = kept_generation()
    assert play(group, SignalReceived(signal.SIGTERM)) == [Terminate((0, 1)), PreemptionBegan()]
    assert group.deadline == 1.0 + LEAVING_SECONDS
    left = Failed(exception="sys.exit(75)", traceback="", exit_code=75)
    outcome = outcome_of(play(group, Said(0, StepDone(0, 7, 0)), Said(0, left), RankEnded(0, 75), RankEnded(1, 75)))
    assert outcome.cause == Preemption(7)
    assert outcome.exit_code == 75


def test_a_script_that_keeps_snapshots_of_its_own_accord_leaves_by_itself_with_75():
    group = Generation(num_workers=2, start_timeout_seconds=60.0, now=0.0)
    play(group, Said(0, KeepsSnapshots()), Said(1, KeepsSnapshots()))
    assert play(group, SignalReceived(signal.SIGTERM)) == [Terminate((0, 1)), PreemptionBegan()]
    assert outcome_of(play(group, RankEnded(0, 75), RankEnded(1, 75))).exit_code == 75


def test_one_preempted_worker_takes_all_with_it():
    group = kept_generation()
    assert play(group, Said(1, Preempted(1, 7)), RankEnded(1, 75)) == []
    assert outcome_of(play(group, RankEnded(0, 75))).exit_code == 75


def test_a_scheduler_that_tells_the_launchers_of_all_hosts_gets_its_snapshot():
    group = kept_generation()
    notice, relayed = SignalReceived(signal.SIGUSR1), SignalReceived(signal.SIGUSR1, is_relayed=True)
    assert play(group, notice) == [Terminate((0, 1)), PreemptionBegan()]
    assert play(group, relayed, relayed) == []
    assert group.deadline == 1.0 + LEAVING_SECONDS
    other = kept_generation()
    assert play(other, relayed) == [Terminate((0, 1)), PreemptionBegan()]
    assert play(other, notice, relayed) == []
    assert other.deadline == 1.0 + LEAVING_SECONDS


def test_a_word_to_another_host_does_not_hasten_what_is_ending():
    group = generation(2)
    play(group, SignalReceived(signal.SIGINT))
    assert play(group, SignalReceived(signal.SIGINT, is_relayed=True)) == []
    assert play(group, SignalReceived(signal.SIGINT)) == [Kill()]


def test_a_preemption_that_takes_too_long_is_one_all_the_same():
    """A trace, a data replay, or a step that takes longer."""
    group = kept_generation()
    play(group, Said(0, StepDone(0, 7, 0)), SignalReceived(signal.SIGUSR1))
    assert group.tick(1.0 + LEAVING_SECONDS) == [Announce(Preemption(7)), Terminate((0, 1))]
    assert group.deadline == 1.0 + LEAVING_SECONDS
    assert group.tick(1.0 + LEAVING_SECONDS) == [Kill()]
    assert outcome_of(play(group, RankEnded(0, -9), RankEnded(1, -9))).exit_code == 75


def test_workers_that_nobody_listens_in_yet_are_preempted_too():
    group = kept_generation()
    play(group, Said(0, Joining()), SignalReceived(signal.SIGTERM))
    assert play(group, RankEnded(1, -signal.SIGTERM)) == []
    assert outcome_of(play(group, RankEnded(0, -signal.SIGTERM))).exit_code == 75


@pytest.mark.parametrize("code", [75, -signal.SIGTERM, -signal.SIGUSR1])
def test_a_worker_that_is_preempted_outside_of_fit_takes_the_others_with_it_at_once(code: int):
    group = kept_generation()
    left = Failed(exception="sys.exit(75)", traceback="", exit_code=75)
    said = [Said(1, left)] if code == 75 else []
    assert play(group, *said, RankEnded(1, code)) == [Terminate((0,)), PreemptionBegan()]
    assert group.deadline == 1.0 + LEAVING_SECONDS
    assert outcome_of(play(group, RankEnded(0, 75))).exit_code == 75


@pytest.mark.parametrize(
    "event", [RankEnded(1, -9), RankEnded(1, 1), Said(1, FAILED), HostLost((1,), "b", "is gone")], ids=repr
)
def test_what_a_rank_suffers_while_all_leave_is_part_of_the_preemption(event: Input):
    group = kept_generation()
    play(group, SignalReceived(signal.SIGTERM))
    assert play(group, event) == []
    assert group.deadline == 1.0 + GRACE_SECONDS, "nobody can write a snapshot any more"
    group.tick(1.0 + GRACE_SECONDS)
    group.tick(1.0 + GRACE_SECONDS)
    ends = [RankEnded(1, 1)] if isinstance(event, Said) else []
    assert outcome_of(play(group, *ends, RankEnded(0, -9))).exit_code == 75


def test_a_scheduler_that_tells_all_processes_interrupts_no_snapshot():
    group = kept_generation()
    assert play(group, Said(1, Preempted(1, 7)), SignalReceived(signal.SIGTERM)) == []
    assert group.deadline == 1.0 + LEAVING_SECONDS
    play(group, SignalReceived(signal.SIGTERM))
    assert group.tick(1.0) == [Kill()], "the second one to the launcher"
    assert outcome_of(play(group, RankEnded(0, -9), RankEnded(1, -9))).exit_code == 75


def test_ctrl_c_while_all_leave_is_the_user_s_word():
    group = kept_generation()
    play(group, SignalReceived(signal.SIGTERM), SignalReceived(signal.SIGINT))
    assert outcome_of(play(group, RankEnded(0, -15), RankEnded(1, -15))).exit_code == 130


PIPE = SignalReceived(signal.SIGPIPE)


def test_a_reader_that_leaves_ends_the_job_with_time_to_leave():
    group = kept_generation()
    assert play(group, PIPE) == [Announce(Interrupted(signal.SIGPIPE)), Terminate((0, 1))]
    assert play(group, PIPE, PIPE) == [], "each line that a worker still writes"
    assert outcome_of(play(group, RankEnded(0, 75), RankEnded(1, 75))).exit_code == 141


@pytest.mark.parametrize("is_seen_first", [True, False])
def test_a_reader_that_is_told_to_stop_with_the_job_takes_no_snapshot_from_it(is_seen_first: bool):
    """`paceline run | tee`, and a scheduler that tells the whole process group: 141, and the snapshot was killed."""
    group = kept_generation()
    told = SignalReceived(signal.SIGTERM)
    play(group, *([PIPE, told] if is_seen_first else [told, PIPE]), PIPE, PIPE)
    assert group.deadline == 1.0 + LEAVING_SECONDS
    assert outcome_of(play(group, RankEnded(0, 75), RankEnded(1, 75))).exit_code == 75


def test_ctrl_c_reaches_a_reader_and_the_job():
    group = kept_generation()
    play(group, PIPE)
    assert play(group, SignalReceived(signal.SIGINT)) == [Announce(Interrupted(signal.SIGINT)), Terminate((0, 1))]
    assert play(group, PIPE) == []
    assert play(group, SignalReceived(signal.SIGINT)) == [Kill()]
    assert outcome_of(play(group, RankEnded(0, -15), RankEnded(1, -9))).exit_code == 130


def test_a_reader_that_leaves_while_a_failure_ends_the_others_hastens_nothing():
    group = generation(2)
    play(group, RankEnded(0, 3))
    assert play(group, PIPE) == []
    assert group.deadline == 1.0 + GRACE_SECONDS


def test_a_script_that_comes_to_its_end_while_all_leave_has_succeeded():
    group = kept_generation()
    play(group, SignalReceived(signal.SIGTERM))
    assert outcome_of(play(group, RankEnded(0, 0), RankEnded(1, 0))).exit_code == 0


def test_nobody_is_waited_for_while_all_leave():
    group = kept_generation()
    play(group, Said(0, Joining()), Said(1, Joining()), SignalReceived(signal.SIGTERM), Said(0, Joined()))
    assert group.deadline == 1.0 + LEAVING_SECONDS


def test_without_snapshots_sigterm_is_what_it_was():
    group = generation(2)
    assert play(group, SignalReceived(signal.SIGTERM))[-1] == Terminate((0, 1))
    assert outcome_of(play(group, RankEnded(0, -15), RankEnded(1, -15))).exit_code == 128 + 15


def test_ranks_that_make_no_step_are_examined_and_then_ended():
    group = kept_generation(hang_timeout_seconds=10.0)
    assert group.tick(1000.0) == []  # before the first step: loading data, compiling
    group.on(Said(0, StepDone(0, 3, 0)), 1000.0)
    group.on(Said(1, StepDone(1, 4, 0)), 1005.0)
    assert group.deadline == 1010.0
    assert group.tick(1010.0) == [Examine((0, 1), 10.0)]
    assert group.tick(1010.0) == []
    silent = "does not answer: its Python interpreter is blocked, or its host is too busy"
    hung = Hung((), 4, 10.0, ((0, silent), (1, silent)))
    assert group.tick(1010.0 + STACKS_SECONDS) == [Announce(hung), Terminate((0, 1))]
    assert outcome_of(play(group, RankEnded(0, -9), RankEnded(1, -9), now=1012.0)).cause == hung


def _at(number: int, inside: str, *, data: tuple[int, str] | None = None) -> Whereabouts:
    """In which collective of all ranks a rank is, and in which of a group of some."""
    if data is None:
        return Whereabouts({ALL_RANKS: number}, ALL_RANKS if inside else "", inside)
    return Whereabouts({ALL_RANKS: number, "data": data[0]}, "data" if data[1] else "", data[1])


def _waits_for(rank: int, *, number: int = 9) -> Whereabouts:
    return Whereabouts({ALL_RANKS: number}, ALL_RANKS, "recv with tag 7", rank)


@pytest.mark.parametrize(
    ("said", "ranks"),
    [
        # A pipeline: rank 2 waits for rank 1, which waits for rank 0, which sends nothing.
        ([_at(9, ""), _waits_for(0), _waits_for(1)], (0,)),
        ([None, _waits_for(0), _waits_for(1)], (0,)),
        ([_waits_for(1), _at(10, "barrier"), _at(10, "barrier")], (1,)),
        ([_waits_for(1), _waits_for(0), _at(9, "")], ()),
        ([_at(9, "all_reduce"), _at(8, ""), _at(9, "all_reduce")], (1,)),
        ([_at(9, "barrier"), _at(8, "all_gather"), _at(7, "")], (1, 2)),
        ([_at(9, "barrier"), None, _at(9, "barrier")], (1,)),
        ([_at(9, "barrier"), Stopped(), _at(8, "")], (1,)),
        ([_at(9, "barrier")] * 3, ()),
        ([_at(9, "")] * 3, ()),
        ([_at(9, ""), _at(8, ""), None], ()),
        # Ranks 0 and 2 have a group of their own, in which rank 0 waits; rank 1 has entered more of all ranks' than it.
        ([_at(3, "", data=(7, "barrier")), _at(5, ""), _at(3, "", data=(6, ""))], (2,)),
    ],
)
def test_a_hang_is_blamed_on_the_rank_that_others_wait_for_or_on_none(
    said: list[Message | None], ranks: tuple[int, ...]
):
    """The rank that was heard of longest ago was blamed: which of those that wait that is, is chance."""
    group = kept_generation(num_workers=3, hang_timeout_seconds=10.0)
    for rank in range(3):
        group.on(Said(rank, StepDone(rank, 3, 0)), float(rank))
    assert group.tick(10.0) == [Examine((0, 1, 2), 10.0)]
    for rank, message in enumerate(said):
        if message is not None:
            group.on(Said(rank, message), 10.1)
    [announced, _] = group.tick(10.0 + STACKS_SECONDS)
    assert isinstance(announced, Announce)
    assert isinstance(announced.cause, Hung)
    assert announced.cause.ranks == ranks
    assert [rank for rank, _ in announced.cause.states] == [0, 1, 2]


def test_a_step_in_the_last_moment_saves_the_job():
    group = kept_generation(hang_timeout_seconds=10.0)
    group.on(Said(0, StepDone(0, 3, 0)), 0.0)
    group.on(Said(1, StepDone(1, 3, 0)), 0.0)
    assert group.tick(10.0) == [Examine((0, 1), 10.0)]
    group.on(Said(0, StepDone(0, 4, 0)), 10.1)
    group.on(Said(1, StepDone(1, 4, 0)), 10.2)
    assert group.tick(10.0 + STACKS_SECONDS) == []
    assert group.deadline == 20.1


def test_a_step_that_is_traced_is_not_missed_on_any_rank():
    group = kept_generation(hang_timeout_seconds=10.0)
    play(group, Said(0, StepDone(0, 3, 0)), Said(1, StepDone(1, 3, 0)), Said(1, TraceBegan(1)), now=0.0)
    assert group.deadline is None
    assert group.tick(1000.0) == []
    play(group, Said(0, StepDone(0, 4, 0)), now=1000.0)  # rank 1 has not finished its first step after the trace
    assert group.deadline is None
    play(group, Said(1, StepDone(1, 4, 0)), now=1001.0)
    assert group.deadline == 1011.0


def test_a_trace_that_others_wait_for_ends_what_looked_like_a_hang():
    group = kept_generation(hang_timeout_seconds=10.0)
    play(group, Said(0, StepDone(0, 3, 0)), Said(1, StepDone(1, 3, 0)), now=0.0)
    assert group.tick(10.0) == [Examine((0, 1), 10.0)]
    play(group, Said(0, TraceBegan(0)), now=10.1)
    assert group.tick(1000.0) == []
    play(group, Said(0, StepDone(0, 4, 0)), Said(1, StepDone(1, 4, 0)), now=1000.0)
    assert group.tick(1010.0) == [Examine((0, 1), 10.0)]


def test_a_rank_that_is_stopped_while_another_traces_is_missed():
    group = kept_generation(hang_timeout_seconds=10.0)
    play(group, Said(0, StepDone(0, 3, 0)), Said(1, StepDone(1, 3, 0)), Said(1, TraceBegan(1)), now=0.0)
    assert play(group, Said(0, Stopped()), now=20.0)[1] == Announce(Hung((0,), 3, 10.0, ((0, "is stopped"),)))


def test_who_has_waited_for_the_trace_of_another_has_missed_nothing():
    group = kept_generation(hang_timeout_seconds=10.0)
    play(group, Said(0, StepDone(0, 3, 0)), Said(1, StepDone(1, 3, 0)), Said(1, TraceBegan(1)), now=0.0)
    play(group, Said(1, StepDone(1, 4, 0)), now=60.0)
    assert group.tick(60.0) == []
    assert group.tick(70.0) == [Examine((0, 1), 10.0)]
    assert group.tick(70.0) == [], "the stacks take their time"
    assert group.deadline == 70.0 + STACKS_SECONDS


def test_a_rank_that_dies_in_its_trace_holds_no_clock():
    group = kept_generation(hang_timeout_seconds=10.0)
    play(group, Said(0, StepDone(0, 3, 0)), Said(1, TraceBegan(1)), RankEnded(1, 0), now=0.0)
    assert group.deadline == 10.0


def test_after_its_fit_a_script_may_take_as_long_as_it_likes():
    group = kept_generation(hang_timeout_seconds=10.0)
    play(group, Said(0, StepDone(0, 3, 0)), Said(1, StepDone(1, 3, 0)), Said(0, FitEnded(0, 4)), now=0.0)
    assert group.deadline == 10.0, "the other one is still in it"
    play(group, Said(1, FitEnded(1, 4)), now=5.0)
    assert group.deadline is None
    play(group, Said(0, StepDone(0, 4, 0)), now=500.0)
    assert group.deadline == 510.0


def test_where_snapshots_are_taken_the_others_fall_at_once():
    group = kept_generation()
    play(group, RankEnded(1, -9))
    assert group.deadline == 1.0
    assert group.tick(1.0) == [Kill()]


def test_a_lost_host_stops_the_others():
    group = generation(3)
    actions = play(group, HostLost((1, 2), "b", "is gone"))
    assert actions == [Announce(HostLost((1, 2), "b", "is gone")), Terminate((0,))]
    outcome = outcome_of(play(group, RankEnded(0, -15)))
    assert outcome.exit_code == 69
    assert [end.gone for end in outcome.workers] == [False, True, True]


def test_a_host_whose_ranks_have_ended_may_go():
    group = generation(2)
    assert play(group, RankEnded(1, 0), HostLost((1,), "b", "is gone")) == []
    assert outcome_of(play(group, RankEnded(0, 0))).exit_code == 0


def joined(num_workers: int = 2, **options: float) -> Generation:
    group = Generation(num_workers=num_workers, start_timeout_seconds=60.0, now=0.0, **options)
    play(group, *(Said(rank, message) for message in (Joining(), Joined()) for rank in range(num_workers)))
    return group


@pytest.mark.parametrize("last", [StepDone(1, 3, 0), TraceBegan(1)], ids=["steps", "first step"])
def test_a_rank_that_ends_with_0_in_its_fit_stops_the_job(last: Message):
    """Only other codes stopped it: the others waited for ever, and the hang timeout blamed nobody."""
    group = joined()
    assert play(group, Said(1, last), RankEnded(1, 0)) == [Announce(WorkerFailed(1, 0, None, (0,))), Terminate((0,))]
    outcome = outcome_of(play(group, RankEnded(0, -9)))
    assert outcome.exit_code == 1
    assert outcome.workers[1].in_fit


def test_a_rank_that_ends_with_0_between_its_fits_is_found_when_all_others_wait():
    group = joined(3)
    play(group, *(Said(rank, FitEnded(rank, 4)) for rank in range(3)), RankEnded(1, 0))
    assert looked(group, _at(9, "all_reduce"), _at(9, "all_reduce")) == []
    cause = WorkerFailed(1, 0, None, (0, 2))
    assert looked(group, _at(9, "all_reduce"), _at(9, "all_reduce")) == [Announce(cause), Terminate((0, 2))]


@pytest.mark.parametrize(
    "places",
    [
        [(_at(9, ""), _at(9, "barrier"))] * 3,  # rank 0 writes a file
        [(_at(9, "all_reduce"), _at(8, "")), (_at(9, "all_reduce"), _at(9, "all_reduce"))],
        [(_at(number, "all_reduce"), _at(number, "all_reduce")) for number in range(9, 14)],  # they go on
        [(None, _at(9, "barrier"))] * 3,  # rank 0 does not answer
    ],
)
def test_scripts_that_skip_the_end_of_the_interpreter_on_all_ranks_succeed(places):
    group = joined(3)
    play(group, RankEnded(1, 0))
    for first, last in places:
        assert looked(group, first, last) == []
    assert outcome_of(play(group, RankEnded(2, 0), RankEnded(0, 0))).exit_code == 0
    assert group.deadline is None


def looked(group: Generation, first: Whereabouts | None, last: Whereabouts | None) -> list[Action]:
    """What is done when ranks 0 and 2 have answered where they are."""
    assert group.deadline is not None
    now = group.deadline
    assert group.tick(now) == [Examine((0, 2), None)]
    for rank, place in ((0, first), (2, last)):
        if place is not None:
            group.on(Said(rank, place), now)
    return group.tick(now + ANSWER_SECONDS)


def test_who_has_left_in_order_is_missed_by_nobody():
    group = joined()
    assert play(group, Said(1, StepDone(1, 3, 0)), Said(1, Finishing()), Said(1, Left()), RankEnded(1, 0)) == []
    assert group.deadline is None
    assert outcome_of(play(group, RankEnded(0, 0))).exit_code == 0


def test_an_end_that_was_seen_after_the_last_moment_is_no_process_that_could_not_be_ended():
    """On a busy machine: a rank that had ended was told to have survived SIGKILL."""
    group = generation(3)
    play(group, RankEnded(0, 3), now=10.0)
    outcome = outcome_of(group.tick(10.0 + LIMIT_SECONDS)).completed({0: -9, 1: -9})
    assert [end.exit_code for end in outcome.workers] == [3, -9, None]
