"""Every plan can be written and read again; everything else is refused, with all that is wrong with it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.chaos.fault_text import read_plan
from paceline.chaos.plan import AT_A_STEP_ONLY, WITHOUT_STEP, Action, Fault, Phase, Plan, RandomFaults
from paceline.errors import ConfigurationError


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    action = draw(st.sampled_from(Action))
    phase = Phase.STEP if action in AT_A_STEP_ONLY else draw(st.sampled_from(Phase))
    steps = st.integers(1, 10**6)
    step = draw(steps) if phase is Phase.STEP else None if phase in WITHOUT_STEP else draw(st.none() | steps)
    generation = draw(st.integers(2 if phase is Phase.RESTART else 1, 9))
    factor = draw(st.integers(2, 100)) / (1 if draw(st.booleans()) else 1.6) if action is Action.SLOW else 1.0
    rank = draw(st.none() | st.integers(0, 99))
    return Fault(action=action, phase=phase, rank=rank, step=step, generation=generation, factor=float(f"{factor:g}"))


@given(st.lists(faults(), min_size=1, max_size=5))
def test_what_is_written_is_read(wanted: list[Fault]) -> None:
    plan = Plan(tuple(wanted))
    assert read_plan([str(plan)]) == plan


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_random_faults_are_read_again(seed: int, every: int) -> None:
    plan = Plan(random=RandomFaults(seed, every, Action.STOP))
    assert read_plan([str(plan)]) == plan


@given(st.text(max_size=60))
def test_any_text_is_a_plan_or_a_configuration_error(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        plan = read_plan([text])
        assert read_plan([str(plan)]) == plan


def test_each_fault_strikes_in_a_generation_of_its_own() -> None:
    plan = read_plan(["kill:step=5; stop:rank=1,phase=restart", "exception:phase=end"])
    assert [fault.generation for fault in plan.faults] == [1, 2, 3]


def test_a_fault_that_nobody_dies_of_shares_its_generation_with_the_next() -> None:
    plan = read_plan(["disk-full:step=5; exception:phase=snapshot; kill:step=9; kill:step=20"])
    assert [fault.generation for fault in plan.faults] == [1, 1, 1, 2]


def test_a_named_generation_leaves_the_order_of_the_others() -> None:
    plan = read_plan(["kill:step=5,generation=4; kill:step=6; kill:step=7"])
    assert [fault.generation for fault in plan.faults] == [4, 1, 2]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("boom:step=3", ['"boom"', "kill, stop, term"]),
        ("kill", ["neither step= nor phase="]),
        ("", ['""']),
        ("kill:step=0", ["step=0", "from 1 on"]),
        ("kill:step=3,rank=-1", ["rank=-1", "or any"]),
        ("kill:phase=noon", ["phase=noon", "validation"]),
        ("kill:step=3,step=4", ["once"]),
        ("kill:colour=red,step=3", ["colour=red"]),
        ("kill:phase=restart", ["generation 1, which is no restart", "kill:step=5; kill:phase=restart"]),
        ("stop:phase=start,step=3", ["no step="]),
        ("disk-full:phase=end", ["leave phase= out"]),
        ("slow:rank=1", ["no factor=", "e.g. slow:rank=1,factor=2"]),
        ("slow:factor=1", ["factor=1", "more than 1"]),
        ("slow:factor=nan", ["factor=nan"]),
        ("kill:step=3,factor=2", ["factor= only with slow"]),
        ("term:step=3; kill:step=4", ["a fault after a term"]),
        ("random:seed=3", ["every="]),
        ("random:every=4,action=term", ["action=term"]),
        ("random:every=4; kill:step=3", ["alone"]),
        ("boom; kill; kill:step=x", ['"boom"', "neither step=", "step=x"]),
    ],
)
def test_nonsense_is_refused(text: str, named: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_plan([text])
    assert all(word in str(raised.value) for word in named), str(raised.value)
