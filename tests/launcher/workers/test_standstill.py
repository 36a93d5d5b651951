"""A worker that is stopped before it makes a step ends its generation; one that only takes its time does not."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.events.worker_events import StepDone
from paceline.launcher.generations.decisions import Announce, Examine, Hung, Said, Terminate
from paceline.launcher.generations.generation import Generation
from paceline.launcher.workers.process_state import Standstill
from paceline.rendezvous.channel import Stopped


@given(st.lists(st.booleans(), max_size=40))
def test_who_is_stopped_for_so_long_is_told_once(is_stopped: list[bool]) -> None:
    standstill, run, told = Standstill(limit_seconds=3), 0, 0
    for second, stopped in enumerate(is_stopped):
        run = run + 1 if stopped else 0
        late = standstill.overdue({1} if stopped else set(), float(second))
        assert late == ((1,) if run == 4 else ())
        told += len(late)


def generation() -> Generation:
    return Generation(num_workers=2, start_timeout_seconds=60, now=0.0, hang_timeout_seconds=5.0)


def test_a_worker_that_is_stopped_before_its_first_step_has_hung() -> None:
    actions = generation().on(Said(1, Stopped()), now=9.0)
    assert actions == [Examine((1,), 5.0), Announce(Hung((1,), None, 5.0, ((1, "is stopped"),))), Terminate((0, 1))]


def test_a_worker_that_makes_steps_is_missed_by_them() -> None:
    stepping = generation()
    stepping.on(Said(1, StepDone(1, 3, 0)), now=1.0)
    assert stepping.on(Said(1, Stopped()), now=2.0) == []
