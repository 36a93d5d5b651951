"""What a job does now, from its events."""

import pytest

from paceline.events.head_events import (
    GenerationBegan,
    GenerationEnded,
    HangFound,
    HostLost,
    JobEnded,
    PreemptionBegan,
    RankEnded,
    RanksWaiting,
    Restarted,
    StopBegan,
    StuckFound,
    WorkerStarted,
)
from paceline.events.worker_events import (
    BatchDone,
    EpochBegan,
    EpochEnded,
    Event,
    FitBegan,
    FitEnded,
    SnapshotFailed,
    SnapshotTaken,
    StepDone,
    StepsTimed,
    StragglerFound,
    TraceBegan,
)
from paceline.launcher.live.job_state import RATE_SECONDS, JobState
from paceline.launcher.live.job_status import JobStatus

BEGUN = (
    GenerationBegan(1, num_workers=2),
    WorkerStarted(0, "a", 10, "worker 0"),
    WorkerStarted(1, "b", 11, "worker 1"),
    WorkerStarted(2, "a", 12, "ps 0"),
)
FIT = (*BEGUN, FitBegan(0, 0, 0, False), FitBegan(1, 0, 0, False))
TIMES = StepsTimed(0, 50, 0.04, {"compute": 0.6, "waiting": 0.4}, 1, False, "step 40 ms: ...")
SLOW = StragglerFound(0, 1, 1.8, 0.4, "", "rank 1 ... [straggler]")


def after(*events: Event, now: float = 100.0) -> JobStatus:
    state = JobState("ab12", "train.py", "a", 9, max_restarts=3, began_at=90.0)
    for event in events:
        state.hear(event, now)
    return state.status(now)


@pytest.mark.parametrize(
    ("events", "job", "workers"),
    [
        ((), "connecting", []),
        (BEGUN[:1], "starting", []),
        (BEGUN, "running", ["running", "running", "running"]),
        (FIT, "building", ["building", "building", "running"]),
        ((*FIT, TraceBegan(1)), "tracing", ["building", "tracing", "running"]),
        ((*BEGUN, RanksWaiting((0,), (1,), 10.0)), "waiting", ["waiting", "running", "running"]),
        ((*FIT, StepDone(0, 1, 0), StepDone(1, 1, 0)), "training", ["training", "training", "running"]),
        ((*FIT, BatchDone(0, 1, 0, True), BatchDone(1, 1, 0, False)), "validating", ["validating", "evaluating"]),
        ((*FIT, FitEnded(0, 7)), "between fits", ["between fits", "building"]),
        ((*FIT, RankEnded(1, -9, ""), StopBegan("x")), "stopping", ["building", "killed (SIGKILL)"]),
        ((*FIT, RankEnded(0, 0, "")), "building", ["ended", "building"]),
        ((BEGUN[0], BEGUN[2], BEGUN[1], RankEnded(1, 0, "")), "running", ["running", "ended"]),
        ((*FIT, RankEnded(1, 0, ""), RankEnded(0, 1, "")), "failed (1)", ["failed (1)", "ended"]),
        ((*FIT, HostLost((1,), "b", "x")), "building", ["building", "lost"]),
        ((*FIT, HangFound((0,), 9.0, "rank 0")), "hanging", ["hanging", "building"]),
        ((*FIT, StuckFound("ps 0", "x")), "building", ["building", "building", "hanging"]),
        ((*FIT, PreemptionBegan()), "stopping", ["building", "building"]),
        ((*FIT, GenerationEnded(1, 3, 1, "x"), Restarted(2, 1.0)), "restarting", ["building", "building"]),
        ((*FIT, GenerationEnded(1, 3, 1, "x"), Restarted(2, 1.0), GenerationBegan(2, 2)), "starting", []),
        ((*FIT, JobEnded(0, 1.0, 1, None, 0, 0, 0.0, 1.0)), "ended", ["building", "building"]),
    ],
)
def test_states(events: tuple[Event, ...], job: str, workers: list[str]) -> None:
    status = after(*events)
    assert status.state == job
    assert [one.state for one in status.workers][: len(workers)] == workers
    assert bool(status.workers) is bool(workers)


def test_who_the_processes_are() -> None:
    ranks = [(one.process, one.rank, one.host, one.pid) for one in after(*BEGUN).workers]
    assert ranks == [("worker 0", 0, "a", 10), ("worker 1", 1, "b", 11), ("ps 0", None, "a", 12)]


def test_what_is_not_known_is_none() -> None:
    status = after()
    assert (status.epoch, status.step, status.steps_per_second, status.step_age_seconds) == (None,) * 4
    assert (status.epoch_ended, status.snapshot, status.step_times, status.straggler) == (None,) * 4
    assert (status.seconds, status.num_restarts, status.max_restarts) == (10.0, 0, 3)


def test_the_rate_is_that_of_the_last_steps_of_the_chief() -> None:
    state = JobState("ab12", "train.py", "a", 9, max_restarts=0, began_at=0.0)
    for event in FIT:
        state.hear(event, 0.0)
    for step in range(1, 101):  # a step a second, then four
        state.hear(StepDone(0, step, 0), float(step) if step <= 20 else 20 + (step - 20) / 4)
        state.hear(StepDone(1, step + 7, 0), 0.0)
    status = state.status(42.5)
    assert status.step == 100
    assert status.steps_per_second == pytest.approx(4)
    assert status.step_age_seconds == 2.5
    assert status.workers[1].step == 107
    state.hear(StepDone(0, 101, 1), 40 + 10 * RATE_SECONDS)  # slower than the window is long: two are enough
    assert state.status(200.0).steps_per_second == pytest.approx(1 / (10 * RATE_SECONDS))
    assert state.status(200.0).epoch == 1


def test_epochs_snapshots_and_times_are_those_that_were_told_last() -> None:
    ended, taken = EpochEnded(0, 1, 20, 2.0, {"loss": 0.5, "auc": None}), SnapshotTaken(0, 20, "step-20", 9)
    others = EpochEnded(1, 1, 20, 2.0, {"loss": 7.0})
    first = EpochEnded(0, 0, 10, 2.0, {"loss": 1.0})
    status = after(*FIT, first, EpochBegan(0, 1, 10), ended, others, taken, SnapshotFailed(1, 20, "x"), TIMES, SLOW)
    assert status.epoch_ended == ended
    assert (status.epoch, status.snapshot, status.num_snapshots, status.num_failed_snapshots) == (1, taken, 1, 1)
    assert (status.step_times, status.straggler) == (TIMES, SLOW)


@pytest.mark.parametrize("event", [FitBegan(0, 1, 20, False), GenerationBegan(2, 2)])
def test_who_was_slow_in_another_fit_is_forgotten(event: Event) -> None:
    status = after(*FIT, TIMES, SLOW, SnapshotTaken(0, 20, "step-20", 9), event)
    assert (status.step_times, status.straggler) == (None, None)
    assert status.snapshot is not None


def test_a_restart_keeps_what_was_before_but_not_the_workers() -> None:
    failed = GenerationEnded(1, 12, 137, "rank 1 was killed")
    again = (Restarted(2, 0.0), GenerationBegan(2, 2), *BEGUN[1:3])
    status = after(*FIT, EpochBegan(0, 1, 10), StepDone(0, 12, 1), RankEnded(1, -9, ""), failed, *again)
    assert (status.num_restarts, status.generation, status.failure) == (1, 2, "rank 1 was killed")
    assert (status.epoch, status.step, status.steps_per_second) == (1, None, None)
    assert [one.state for one in status.workers] == ["running", "running"]


def test_ranks_of_which_nothing_more_is_heard_wait_no_more() -> None:
    state = JobState("ab12", "train.py", "a", 9, max_restarts=0, began_at=0.0)
    for event in (*BEGUN, RanksWaiting((0,), (1,), 10.0)):
        state.hear(event, 10.0)
    assert state.status(20.0).state == "waiting"
    assert state.status(40.0).state == "running"


def test_without_steps_the_rate_falls() -> None:
    state = JobState("ab12", "train.py", "a", 9, max_restarts=0, began_at=0.0)
    for step in range(1, 21):
        state.hear(StepDone(0, step, 0), step / 10)
    assert state.status(2.0).steps_per_second == pytest.approx(10)
    assert state.status(3600.0).steps_per_second == pytest.approx(19 / 3600, rel=0.01)


def test_who_is_slow_no_more_is_not_shown() -> None:
    assert after(*FIT, SLOW, TIMES).straggler == SLOW
    alike = StepsTimed(0, 50, 0.04, {"compute": 1.0}, None, False, "step 40 ms: ...")
    assert after(*FIT, SLOW, TIMES, alike).straggler is None
