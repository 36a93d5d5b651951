"""Where the time of a job goes: whatever happens in whatever order, the parts add up to the wall time."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.events.head_events import (
    Death,
    GenerationBegan,
    GenerationEnded,
    HostLost,
    JobAccount,
    PreemptionBegan,
    RankEnded,
    Restarted,
    StopBegan,
)
from paceline.events.worker_events import (
    BatchDone,
    EpochBegan,
    EpochEnded,
    Event,
    FitBegan,
    FitEnded,
    Preempted,
    SnapshotTaken,
    StepDone,
    TimeSpent,
    TraceBegan,
    TrainingResumed,
)
from paceline.launcher.generations.account import Account, account_text

Marks = Sequence[tuple[float, Event]]

BEGUN: Marks = ((1.0, GenerationBegan(1, num_workers=2)), (10.0, FitBegan(0, 0, 0, False)))
KILLED = RankEnded(1, -9, "")


def told(*marks: tuple[float, Event], end: float) -> JobAccount:
    account = Account(0.0)
    for now, event in marks:
        account.hear(event, now)
    return account.told(end)


def stopped(now: float, *, has_failed: bool = True) -> tuple[float, Event]:
    return now, GenerationEnded(1, None, 137, "x", has_failed)


def restarted(now: float) -> tuple[float, Event]:
    return now, Restarted(2, 0.0)


def step(now: float, number: int, rank: int = 0) -> tuple[float, Event]:
    return now, StepDone(rank, number, 0)


def resumed(now: float, at: int) -> Marks:
    """Three seconds until `fit`, and one to read a snapshot."""
    began = (now, GenerationBegan(2, num_workers=2)), (now + 3, FitBegan(0, 0, 0, False))
    return (*began, (now + 4, TrainingResumed(0, at, 0, 2, "s")), (now + 4, EpochBegan(0, 0, at)))


ranks = st.integers(0, 2)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(GenerationBegan, st.integers(1, 3), st.integers(1, 2)),
    st.builds(FitBegan, ranks, st.just(0), st.integers(0, 9), st.booleans()),
    st.builds(EpochBegan, ranks, st.just(0), st.just(0)),
    st.builds(TraceBegan, ranks),
    st.builds(TrainingResumed, ranks, st.integers(0, 9), st.just(0), st.just(2), st.sampled_from(["", "s"])),
    st.builds(StepDone, ranks, st.integers(0, 30), st.just(0)),
    st.builds(BatchDone, ranks, st.integers(0, 30), st.just(0), st.booleans()),
    st.builds(TimeSpent, ranks, st.dictionaries(st.sampled_from(["compute", "waiting", "tracing"]), st.floats(0, 99))),
    st.builds(EpochEnded, ranks, st.just(0), st.just(0), st.just(0.1), st.just({})),
    st.builds(FitEnded, ranks, st.just(0)),
    st.builds(SnapshotTaken, ranks, st.just(0), st.just("s"), st.just(1)),
    st.builds(Preempted, ranks, st.just(0)),
    st.builds(PreemptionBegan),
    st.builds(StopBegan, st.just("x")),
    st.builds(RankEnded, ranks, st.sampled_from([0, 75, -9]), st.just("")),
    st.builds(HostLost, st.sampled_from([(0,), (1,), (7,)]), st.just("b"), st.just("x")),
    st.builds(GenerationEnded, st.just(1), st.just(3), st.just(1), st.just("x"), st.booleans()),
    st.builds(Restarted, st.integers(2, 3), st.just(0.0)),
)
passing = st.floats(0, 60)


def check_adds_up(account: JobAccount, seconds: float) -> None:
    every = [account.parts, *(death.seconds for death in account.deaths)]
    assert all(part > 0 for some in every for part in some.values())
    assert sum(part for some in every for part in some.values()) == pytest.approx(seconds, abs=1e-6)
    assert account.seconds == pytest.approx(seconds)


@given(st.lists(st.tuples(passing, events), max_size=60), passing)
@example(
    [
        (0.0, GenerationBegan(1, 1)),
        (0.0, HostLost((0,), "b", "x")),
        (1.0, Restarted(2, 0.0)),
        (0.0, GenerationEnded(1, 3, 1, "x", False)),
    ],
    0.0,
)
def test_the_parts_of_any_sequence_of_events_add_up(marks: list[tuple[float, Event]], rest: float) -> None:
    account, now = Account(100.0), 100.0
    for seconds, event in marks:
        now += seconds
        account.hear(event, now)
        check_adds_up(account.told(now + rest), now + rest - 100.0)  # asking changes nothing
    check_adds_up(account.told(now), now - 100.0)


@given(st.data())
def test_deaths_at_any_step_count_what_is_done_again(data: st.DataObject) -> None:
    """A step takes a second, messages may tell of several; `steps again` has a second for each but the first."""
    marks, now, done, best, again = [*BEGUN], 10.0, 0, 0, 0
    for _ in range(data.draw(st.integers(1, 4))):
        until = data.draw(st.integers(done + 1, done + 12))
        resumed_at = done
        while done < until:
            count = data.draw(st.integers(1, until - done))
            done, now = done + count, now + count
            marks.append(step(now, done))
        again += max(min(done, best) - resumed_at, 0)
        best = max(best, done)
        marks += [(now + 0.5, KILLED), stopped(now + 0.75), restarted(now + 0.75)]
        done = data.draw(st.integers(0, done))
        marks += resumed(now + 1, done)
        now += 5
    account = told(*marks, end=now)
    check_adds_up(account, now)
    assert sum(death.num_steps for death in account.deaths) == again
    for death in account.deaths:
        assert death.seconds.get("detection") == pytest.approx(0.5)
        assert death.seconds.get("steps again", 0.0) <= death.num_steps
    assert [death.seconds["restart"] for death in account.deaths] == pytest.approx([3.25] * len(account.deaths))


def test_a_death_costs_what_lies_between_its_last_step_and_that_step_again() -> None:
    steps = step(12.0, 1), step(20.0, 9), step(20.5, 9, rank=1)
    death = (21.0, KILLED), (21.0, StopBegan("x")), (21.5, RankEnded(0, -15, "")), stopped(21.5), restarted(22.0)
    again = step(29.0, 7), step(30.0, 8), step(32.0, 10)
    account = told(*BEGUN, *steps, *death, *resumed(23.0, 6), *again, (40.0, FitEnded(0, 18)), end=41.0)
    assert account.parts == {"start": 10.0, "tracing": 2.0, "steps": 17.0, "script": 1.0}
    lost = {"detection": 1.0, "stopping": 0.5, "restart": 4.5, "restoring": 1.0, "tracing": 2.0, "steps again": 2.0}
    assert account.deaths == (Death("x", 9, 3, lost),)


def test_a_death_before_the_last_one_was_made_good() -> None:
    first = step(12.0, 9), (12.0, KILLED), stopped(12.0), restarted(12.0), *resumed(12.0, 5)
    second = step(17.0, 6), step(18.0, 7), (18.5, KILLED), stopped(18.5), restarted(18.5), *resumed(18.5, 5)
    account = told(*BEGUN, *first, *second, step(23.5, 6), step(26.5, 9), step(27.5, 10), end=27.5)
    assert [death.num_steps for death in account.deaths] == [2, 4]
    assert [death.step for death in account.deaths] == [9, 9]
    assert [death.seconds["steps again"] for death in account.deaths] == [1.0, 3.0]
    assert account.parts == {"start": 10.0, "tracing": 2.0, "steps": 1.0}


def test_what_the_chief_tells_divides_the_time_since_it_told_before() -> None:
    sums = (
        (12.0, TimeSpent(0, {"tracing": 2.0})),
        (22.0, TimeSpent(0, {"tracing": 2.0, "compute": 6.0, "waiting": 2.0})),  # 2 s are in no phase: in proportion
        (27.0, TimeSpent(0, {"tracing": 2.0, "compute": 6.0, "waiting": 2.0, "validation": 5.0})),
    )
    account = told(*BEGUN, step(12.0, 1), sums[0], step(22.0, 9), sums[1], sums[2], step(28.0, 10), end=28.5)
    assert account.parts == pytest.approx(
        {"start": 10.0, "tracing": 2.0, "compute": 7.5, "waiting": 2.5, "validation": 5.0, "steps": 1.5}
    )


def test_sums_begin_anew_with_each_fit() -> None:
    first = step(12.0, 1), (12.0, TimeSpent(0, {"compute": 9.0})), (12.0, FitEnded(0, 1))
    account = told(*BEGUN, *first, (15.0, FitBegan(0, 1, 1, False)), (17.0, TimeSpent(0, {"tracing": 2.0})), end=17.0)
    assert account.parts == {"start": 10.0, "compute": 2.0, "script": 3.0, "tracing": 2.0}


@pytest.mark.parametrize(
    ("marks", "parts"),
    [
        pytest.param(
            [(14.0, PreemptionBegan()), (15.0, Preempted(0, 1)), (16.0, RankEnded(0, 75, "")), stopped(17.0)],
            {"steps": 3.0, "end": 3.0},
            id="preempted",
        ),
        pytest.param(
            [(14.0, PreemptionBegan()), (16.0, StopBegan("x")), stopped(17.0)], {"steps": 4.0, "end": 2.0}, id="overdue"
        ),
        pytest.param([(14.0, StopBegan("SIGINT")), stopped(17.0)], {"steps": 2.0, "end": 4.0}, id="interrupted"),
        pytest.param(
            [(14.0, FitEnded(0, 1)), (15.0, RankEnded(0, 0, "")), stopped(16.0)],
            {"steps": 2.0, "script": 1.0, "end": 3.0},
            id="ended",
        ),
    ],
)
def test_who_stops_a_job_is_no_death(marks: list[tuple[float, Event]], parts: dict[str, float]) -> None:
    marks = [(now, GenerationEnded(1, 1, 75, "x") if isinstance(one, GenerationEnded) else one) for now, one in marks]
    account = told(*BEGUN, step(12.0, 1), *marks, end=18.0)
    assert account.deaths == ()
    assert account.parts == {"start": 10.0, "tracing": 2.0, **parts}


def test_a_death_out_of_steps_is_noticed_at_once() -> None:
    """What a rank did before it died in its script is the script's time, of which nobody knows what was lost."""
    account = told(*BEGUN, step(12.0, 1), (13.0, FitEnded(0, 1)), (60.0, KILLED), stopped(61.0), end=61.0)
    assert account.parts == {"start": 10.0, "tracing": 2.0, "steps": 1.0, "script": 47.0}
    assert account.deaths == (Death("x", 1, 0, {"stopping": 1.0}),)
    assert account_text(account) == "", "a job that does not go on has a report"


def test_a_hang_is_detected_when_the_job_is_stopped_for_it() -> None:
    account = told(*BEGUN, step(12.0, 1), (72.5, StopBegan("no rank made a step")), stopped(73.0), end=73.0)
    assert account.deaths == (Death("x", 1, 0, {"detection": 60.5, "stopping": 0.5}),)


def test_what_was_done_before_a_death_and_heard_of_after_it_counts() -> None:
    late = (14.0, KILLED), step(14.1, 4), stopped(15.0), restarted(15.0), *resumed(15.0, 1)
    account = told(*BEGUN, step(12.0, 3), *late, step(20.0, 2), step(22.0, 4), end=22.0)
    assert [(death.step, death.num_steps) for death in account.deaths] == [(4, 3)]


def test_calls_of_fit_that_are_passed_over_are_time_to_restore() -> None:
    again = (12.0, FitBegan(0, 1, 9, False)), (13.0, TrainingResumed(0, 12, 0, 1, "s")), step(15.0, 13)
    account = told(BEGUN[0], (10.0, FitBegan(0, 0, 0, True)), *again, end=15.0)
    assert account.parts == {"start": 10.0, "restoring": 3.0, "tracing": 2.0}


def test_other_processes_of_the_job_are_none_of_its_time() -> None:
    others = (13.0, RankEnded(2, -9, "")), (13.0, StepDone(2, 99, 0)), (13.0, HostLost((2,), "b", "x"))
    account = told(*BEGUN, step(12.0, 1), *others, step(14.0, 2), end=14.0)
    assert (account.parts, account.deaths) == ({"start": 10.0, "tracing": 2.0, "steps": 2.0}, ())


def test_a_loop_of_the_scripts_own() -> None:
    began = (1.0, GenerationBegan(1, num_workers=2)), step(4.0, 1), step(6.0, 3), (7.0, KILLED), stopped(7.0)
    again = (7.0, GenerationBegan(2, num_workers=2)), (9.0, TrainingResumed(0, 2, 0, 2, "s")), step(11.0, 3)
    account = told(*began, restarted(7.0), *again, end=12.0)
    assert account.parts == {"start": 4.0, "steps": 3.0}
    assert account.deaths == (Death("x", 3, 1, {"detection": 1.0, "restart": 2.0, "tracing": 2.0}),)
