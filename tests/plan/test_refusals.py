"""What is refused before start, all at once."""

import pytest

from paceline.errors import ConfigurationError
from paceline.plan.planning import make_plan
from paceline.plan.refusals import faults_of, refuse
from paceline.plan.schedules import schedule_named
from paceline.plan.shape import Shape


def test_what_goes_together_passes() -> None:
    refuse(schedule_named("1f1b"), 2, 8, num_layers=2, batch_rows=16, world_size=4)


@pytest.mark.parametrize(
    ("name", "stages", "micro_batches", "fault"),
    [
        ("gpipe", 9, 2, "9 chunks (9 stages, schedule 'gpipe') are more than the model's 8 layers"),
        ("interleaved", 5, 2, "10 chunks (5 stages, schedule 'interleaved') are more than the model's 8 layers"),
        ("zb_v", 5, 2, "10 chunks"),
        (
            "1f1b",
            2,
            6,
            "A batch of 32 rows cannot be cut into 6 micro-batches for each of 6 replicas: ask for at most 5, or "
            "enlarge the batch to 36 rows.",
        ),
        ("1f1b", 1, 4, "for each of 12 replicas: ask for at most 2, or enlarge the batch to 48 rows."),
        ("pipedream_2bw", 4, 3, "'pipedream_2bw' with 4 stages needs at least 4 micro-batches, not 3"),
        ("1f1b", 5, 8, "12 workers cannot be divided into 5 stages of as many replicas each: start 10 or 15 workers"),
        ("1f1b", 0, 8, "stages=0"),
    ],
)
def test_each_fault(name: str, stages: int, micro_batches: int, fault: str) -> None:
    assert fault in " ".join(faults_of(schedule_named(name), stages, micro_batches, 8, 32, 12))


def test_fewer_rows_than_replicas() -> None:
    [fault] = faults_of(None, 2, 1, None, 1, 4)
    assert fault.endswith("1 micro-batches for each of 2 replicas: enlarge the batch to 2 rows.")


def test_all_faults_at_once() -> None:
    with pytest.raises(
        ConfigurationError, match=r"8 layers.*32 rows.*12 workers.*start 11 or 22 workers. \[pipeline\]"
    ):
        refuse(schedule_named("gpipe"), 11, 40, num_layers=8, batch_rows=32, world_size=12)


def test_fewer_workers_than_stages() -> None:
    assert "start 4 or 8 workers" in faults_of(schedule_named("gpipe"), 4, 4, 8, 32, 2)[0]


def test_unknown_schedules_and_impossible_plans() -> None:
    with pytest.raises(ValueError, match="received the schedule 'zb2'; expected one of gpipe, 1f1b"):
        schedule_named("zb2")
    with pytest.raises(ValueError, match="for pipedream_2bw at least 3 micro-batches"):
        make_plan(schedule_named("pipedream_2bw"), 3, 2, batches=2)
    with pytest.raises(ValueError, match="expected 1, as gpipe is synchronous"):
        make_plan(schedule_named("gpipe"), 3, 2, batches=2)
    with pytest.raises(ValueError, match=r"received the edges \[\(1, 1\)\]"):
        Shape((0, 1), ((0, 1), (1, 1)))
    with pytest.raises(ValueError, match="expected each stage from 0 to have one"):
        Shape((0, 2), ())
