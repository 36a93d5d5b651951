"""A fault strikes once, on one rank, the same in the eyes of all ranks."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.chaos.plan import Action, Fault, Moment, Phase, Plan, RandomFaults


def fault(phase: Phase, step: int | None = None, **more: object) -> Fault:
    return Fault(action=Action.KILL, phase=phase, step=step, **more)  # type: ignore[arg-type]


@given(st.integers(1, 50), st.lists(st.integers(1, 4), min_size=1, max_size=60))
def test_a_step_is_struck_at_most_once_however_steps_are_counted(step: int, increments: list[int]) -> None:
    """Several steps per execution jump over it."""
    before, strikes = 0, 0
    for increment in increments:
        strikes += fault(Phase.STEP, step).is_due(Moment(Phase.STEP, before + increment, before), began_at=0)
        before += increment
    assert strikes == (1 if before >= step else 0)


def test_a_generation_beyond_the_step_is_not_struck() -> None:
    assert fault(Phase.STEP, 50).is_missed(began_at=50)
    assert not fault(Phase.STEP, 51).is_missed(began_at=50)
    assert not fault(Phase.STEP, 3, counts_new_steps=True).is_missed(began_at=50)


def test_other_phases_are_struck_from_their_step_on() -> None:
    validation = fault(Phase.VALIDATION, 10)
    assert not validation.is_due(Moment(Phase.VALIDATION, 9), began_at=0)
    assert validation.is_due(Moment(Phase.VALIDATION, 12), began_at=0)
    assert not validation.is_due(Moment(Phase.SNAPSHOT, 12), began_at=0)


@given(st.integers(0, 99), st.integers(1, 99), st.integers(1, 20), st.integers(1, 8))
def test_random_faults_come_about_so_often_on_some_rank(seed: int, every: int, generation: int, size: int) -> None:
    one = RandomFaults(seed, every).fault_of(generation, size)
    assert one == RandomFaults(seed, every).fault_of(generation, size)
    assert max(1, every // 2) <= (one.step or 0) <= max(1, every * 3 // 2)
    assert one.rank in range(size)


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_any_rank_is_drawn_alike_by_all(seed: int, size: int) -> None:
    plan = Plan((fault(Phase.END, rank=None), fault(Phase.END, rank=None, generation=2)))
    for generation in (1, 2):
        [drawn] = plan.faults_of(generation=generation, world_size=size, seed=seed)
        assert drawn.rank in range(size)
        assert plan.faults_of(generation=generation, world_size=size, seed=seed) == (drawn,)


def test_only_the_faults_of_a_generation_strike_in_it() -> None:
    plan = Plan((fault(Phase.END), fault(Phase.END, generation=2)))
    assert plan.faults_of(generation=2, world_size=1, seed=0) == (plan.faults[1],)
    assert plan.num_deaths == 2
