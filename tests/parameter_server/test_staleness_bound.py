"""When steps may begin: never so that one could be too stale, and never so that none may."""

from hypothesis import given
from hypothesis import strategies as st

from paceline.parameter_server.staleness_bound import Begun, StalenessBound


def test_admission_bounds_what_may_happen_while_a_step_runs() -> None:
    assert StalenessBound(2).admits(1, [Begun(1, 0)], 5)
    assert not StalenessBound(2).admits(1, [Begun(1, 0), Begun(1, 0)], 5)
    assert StalenessBound(8, max_staleness=0).admits(1, [], 5)
    assert not StalenessBound(8, max_staleness=0).admits(1, [Begun(1, 5)], 5)
    assert StalenessBound(8, max_staleness=2).admits(1, [Begun(1, 5), Begun(1, 5)], 5)
    assert not StalenessBound(8, max_staleness=2).admits(1, [Begun(1, 4), Begun(1, 5)], 5), "one has ended already"
    assert not StalenessBound(8, max_staleness=2).admits(3, [Begun(1, 5)], 5), "three steps in one execution"


@given(
    max_staleness=st.none() | st.integers(0, 8),
    most_at_once=st.integers(1, 8),
    orders=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.randoms(use_true_random=False)), max_size=40),
)
def test_no_order_of_beginnings_and_ends_makes_a_step_too_stale(
    max_staleness: int | None, most_at_once: int, orders: list
) -> None:
    """Each order begins an execution of so many steps, if that may begin, and ends so many of those that run."""
    staleness_bound = StalenessBound(most_at_once, max_staleness)
    running: dict[int, Begun] = {}
    of_others: dict[int, int] = {}
    """Steps of the executions that have run at some time at which the one of this number did."""
    num_ended = 0
    for number, (num_steps, num_ends, random) in enumerate(orders):
        may_begin = staleness_bound.admits(num_steps, list(running.values()), num_ended)
        assert may_begin or running, "nothing runs, and nothing may begin"
        if may_begin:
            of_others[number] = sum(one.num_steps for one in running.values())
            for other in running:
                of_others[other] += num_steps
            running[number] = Begun(num_steps, num_ended)
        assert len(running) <= most_at_once
        for _ in range(min(num_ends, len(running))):
            num_ended += running.pop(random.choice(sorted(running))).num_steps
    if max_staleness is not None:
        assert all(steps <= max_staleness for steps in of_others.values())


@given(max_staleness=st.integers(0, 8), num_steps=st.integers(1, 4), most_at_once=st.integers(1, 8))
def test_as_many_run_at_once_as_the_bound_allows(max_staleness: int, num_steps: int, most_at_once: int) -> None:
    staleness_bound = StalenessBound(most_at_once, max_staleness)
    running: list[Begun] = []
    while staleness_bound.admits(num_steps, running, 0):
        running.append(Begun(num_steps, 0))
    assert len(running) == min(most_at_once, 1 + max_staleness // num_steps)
