"""When a generation that died is followed by another one; the clock is a number."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.events.head_events import HostLost
from paceline.launcher.generations.decisions import (
    Cause,
    GroupNotFormed,
    Interrupted,
    Outcome,
    WorkerFailed,
    WorkerLeft,
)
from paceline.launcher.generations.restarts import LONGEST_PAUSE_SECONDS, Finish, Restart, RestartBudget, RestartPolicy
from paceline.rendezvous.channel import Failed

KILLED = WorkerFailed(1, -9, None, ())
LOST = HostLost((1,), "b", "is gone")


def raised(text: str, code: int = 1) -> WorkerFailed:
    return WorkerFailed(0, code, Failed(text, "Traceback …", code), ())


def policy(max_restarts: int = 3, window_seconds: float | None = None) -> RestartPolicy:
    return RestartPolicy(RestartBudget(max_restarts, window_seconds))


@pytest.mark.parametrize(
    "cause",
    [
        None,
        Interrupted(signal.SIGINT),
        Interrupted(signal.SIGTERM),
        WorkerLeft(1, (0,)),
        raised("ConfigurationError: no", 78),
        WorkerFailed(0, 78, None, ()),
        WorkerFailed(0, 2, None, ()),
    ],
)
def test_what_no_restart_can_change_ends_the_job(cause: Cause | None):
    assert policy().after(Outcome(cause, ()), None, 0.0) == Finish("")


@pytest.mark.parametrize(
    "cause", [KILLED, LOST, GroupNotFormed((1,), 60.0), raised("OSError: disk"), WorkerFailed(0, 1, None, ())]
)
def test_faults_are_followed_by_a_generation_at_once(cause: Cause):
    assert policy().after(Outcome(cause, ()), 5, 0.0) == Restart(0.0)


def test_without_a_budget_nothing_is_restarted_and_nothing_said():
    assert policy(0).after(Outcome(KILLED, ()), 5, 0.0) == Finish("")


def test_the_budget_ends():
    group = policy(2)
    assert group.after(Outcome(KILLED, ()), 1, 0.0) == Restart(0.0)
    assert group.after(Outcome(KILLED, ()), 2, 1.0) == Restart(0.0)
    verdict = group.after(Outcome(KILLED, ()), 3, 2.0)
    assert verdict == Finish("2 restarts have been made, as many as --max-restarts allows")


def test_only_restarts_within_the_window_count():
    group = policy(1, window_seconds=100.0)
    assert group.after(Outcome(KILLED, ()), 1, 0.0) == Restart(0.0)
    assert group.after(Outcome(KILLED, ()), 2, 100.0) == Restart(0.0)
    verdict = group.after(Outcome(KILLED, ()), 3, 199.0)
    assert verdict == Finish("1 restart has been made within 100 s, as many as --max-restarts allows")


def test_sudden_deaths_without_a_step_further_wait_longer_and_longer():
    group = policy(100)
    pauses = [group.after(Outcome(KILLED, ()), 7, float(number)) for number in range(8)]
    assert [pause.pause_seconds for pause in pauses] == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_SECONDS, 30.0]
    assert group.after(Outcome(KILLED, ()), 8, 9.0) == Restart(0.0)  # a step further
    assert group.after(Outcome(LOST, ()), 8, 10.0) == Restart(1.0)


def test_the_same_exception_twice_without_a_step_between_is_a_bug():
    group = policy()
    assert group.after(Outcome(raised("ValueError: x"), ()), 7, 0.0) == Restart(0.0)
    verdict = group.after(Outcome(raised("ValueError: x"), ()), 7, 1.0)
    assert verdict == Finish(
        "the same exception came twice at step 7: a bug in the program, which a restart cannot fix"
    )


@pytest.mark.parametrize(("text", "step"), [("ValueError: y", 7), ("ValueError: x", 8)])
def test_another_exception_or_another_step_is_not(text: str, step: int):
    group = policy()
    group.after(Outcome(raised("ValueError: x"), ()), 7, 0.0)
    assert isinstance(group.after(Outcome(raised(text), ()), step, 1.0), Restart)


@given(
    st.integers(0, 4),
    st.none() | st.floats(1.0, 50.0),
    st.lists(st.tuples(st.sampled_from([KILLED, LOST, raised("a"), raised("b")]), st.integers(0, 3), st.floats(0, 30))),
)
def test_there_are_never_more_restarts_in_a_window_than_allowed(max_restarts, window_seconds, deaths):
    group = policy(max_restarts, window_seconds)
    restarted_at, now = [], 0.0
    for cause, step, seconds in deaths:
        now += seconds
        verdict = group.after(Outcome(cause, ()), step, now)
        if isinstance(verdict, Finish):
            break
        assert 0.0 <= verdict.pause_seconds <= LONGEST_PAUSE_SECONDS
        restarted_at.append(now)
    counted = [time for time in restarted_at if window_seconds is None or now - time < window_seconds]
    assert len(counted) <= max_restarts
