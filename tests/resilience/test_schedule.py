import pytest

from paceline.resilience.schedule import Schedule, parse_schedule


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("100", Schedule(every_steps=100)),
        (" 1 ", Schedule(every_steps=1)),
        ("30s", Schedule(every_seconds=30.0)),
        ("0.5s", Schedule(every_seconds=0.5)),
    ],
)
def test_reads_steps_and_seconds(text: str, schedule: Schedule) -> None:
    assert parse_schedule(text) == schedule


@pytest.mark.parametrize("text", ["", "s", "0", "0s", "-5", "1.5", "30 s", "30m", "ten"])
def test_says_what_it_expects(text: str) -> None:
    with pytest.raises(ValueError, match="--snapshot-every") as fault:
        parse_schedule(text)
    assert repr(text) in str(fault.value)


@pytest.mark.parametrize("wrong", [{"every_steps": 0}, {"every_seconds": -1.0}, {"every_steps": 1, "every_seconds": 0}])
def test_refuses_intervals_that_are_not_positive(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        Schedule(**wrong)  # type: ignore[arg-type]


def test_steps_are_due_once_each_multiple_however_many_are_taken_at_once() -> None:
    schedule = Schedule(every_steps=10)
    due = [step for step in range(3, 60, 3) if schedule.crosses(step - 3, step)]
    assert due == [12, 21, 30, 42, 51]
    assert not Schedule(every_seconds=1).crosses(0, 1000)


def test_seconds() -> None:
    assert Schedule(every_seconds=30).has_passed(30)
    assert not Schedule(every_seconds=30).has_passed(29.9)
    assert not Schedule(every_steps=1).has_passed(1e9)
