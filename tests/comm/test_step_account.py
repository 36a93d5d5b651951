"""Phases add up to the time, and whoever comes last to a message is whom the others wait for."""

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.comm.process_facts import NUM_FACTS, Facts, ProcessFacts
from paceline.comm.step_account import StepAccount, Totals, totals_of
from paceline.comm.step_clock import NUM_NUMBERS, NUM_STEPS, Phase, StepClock

MILLISECOND = 1_000_000
TRANSFER = 2 * MILLISECOND


class Rank:
    """A rank that takes steps by a clock that nobody but the test moves."""

    def __init__(self) -> None:
        self.time = 0
        self.clock = StepClock(lambda: self.time, ProcessFacts(lambda: Facts(), lambda: 0))
        self.clock.begin()

    def spend(self, milliseconds: int) -> None:
        self.time += milliseconds * MILLISECOND


def _met(ranks: list[Rank]) -> None:
    """All ranks leave a message together, a transfer after the last one has entered it."""
    left_at = max(rank.time for rank in ranks) + TRANSFER
    for rank in ranks:
        rank.time = left_at


def _steps(ranks: list[Rank], steps: list[list[dict[str, int]]]) -> Totals:
    """What is counted of steps: of each rank, milliseconds of what it does in each."""
    account = StepAccount(len(ranks))
    ranks[0].clock.hear = lambda first, size, told: account.hear(first, told) and None
    for step in steps:
        for rank, does in zip(ranks, step, strict=True):
            rank.clock.step_begins()
            rank.spend(does.get("input", 0))
        told = [rank.clock.count_begins(number, len(ranks)) for number, rank in enumerate(ranks)]
        _met(ranks)
        for rank, does in zip(ranks, step, strict=True):
            rank.clock.count_ended(len(ranks), np.sum(told, 0))
            rank.spend(does.get("compute", 0))
            rank.clock.message_begins()
        _met(ranks)
        for rank, does in zip(ranks, step, strict=True):
            rank.clock.message_ended()
            rank.spend(does.get("update", 0))
            rank.clock.step_ended()
            with rank.clock.during(Phase.CALLBACKS):
                rank.spend(does.get("callbacks", 0))
            rank.spend(does.get("rest", 0))
    return account.settled()


_does = st.fixed_dictionaries(
    {name: st.integers(0, 50) for name in ("input", "compute", "update", "callbacks", "rest")}
)


@given(
    st.integers(1, 4).flatmap(
        lambda size: st.lists(st.lists(_does, min_size=size, max_size=size), min_size=3, max_size=6)
    )
)
def test_phases_and_waiting_add_up_to_the_time(steps: list[list[dict[str, int]]]) -> None:
    ranks = [Rank() for _ in steps[0]]
    totals = _steps(ranks, steps)
    # What is told covers the time up to the first message of the last step.
    for number, entered_at in enumerate(_first_messages(steps)[-1]):
        covered = entered_at / 1000
        assert totals.phases[number].sum() + totals.waited[number] == pytest.approx(covered)
    assert (totals.waited >= -1e-12).all()
    assert totals.phases[:, [Phase.COUNT, Phase.MESSAGES]] == pytest.approx(2e-3 * (len(steps) - 1))


def _first_messages(steps: list[list[dict[str, int]]]) -> list[list[int]]:
    """When each rank enters the first message of each step, in milliseconds."""
    now = [0] * len(steps[0])
    entered = []
    for step in steps:
        now = [time + does["input"] for time, does in zip(now, step, strict=True)]
        entered.append(now)
        together = max(now) + 2
        now = [together + does["compute"] for does in step]
        together = max(now) + 2
        now = [together + does["update"] + does["callbacks"] + does["rest"] for does in step]
    return entered


@pytest.mark.parametrize("slow", [0, 2])
def test_a_rank_that_computes_longer_is_waited_for(slow: int) -> None:
    step = [{"compute": 30 if rank == slow else 10} for rank in range(3)]
    totals = _steps([Rank() for _ in step], [step] * 11)
    assert totals.num_steps == 10
    assert totals.blamed[slow, Phase.COMPUTE] == pytest.approx(2 * 0.2)
    assert totals.blamed.sum() == pytest.approx(2 * 0.2)
    assert totals.waited == pytest.approx([0 if rank == slow else 0.2 for rank in range(3)])


def test_a_slow_rank_that_leaves_messages_late_is_waited_for_all_the_same() -> None:
    """Over TCP: the others have what they need, while a rank whose core others use still waits for its core."""
    told = np.zeros((10, 2, NUM_NUMBERS), np.int64)
    told[:, :, NUM_STEPS] = 1
    told[:, :, Phase.COUNT] = TRANSFER
    told[:, 0, [Phase.COMPUTE, Phase.MESSAGES]] = 10 * MILLISECOND, 25 * MILLISECOND
    told[:, 1, [Phase.COMPUTE, Phase.MESSAGES]] = 30 * MILLISECOND, 45 * MILLISECOND
    told[0, 1, Phase.MESSAGES] = TRANSFER
    totals = totals_of(list(told), None, 2)
    assert totals.blamed[1, Phase.COMPUTE] == pytest.approx(0.2)
    assert totals.num_last[1, Phase.COMPUTE] == 10
    assert totals.blamed[0].sum() == 0
    assert totals.waited == pytest.approx([0.2, 0])
    assert totals.phases.sum() + totals.waited.sum() == pytest.approx(told[:, :, :NUM_STEPS].sum() / 1e9)


def test_a_wait_for_anybodys_input_is_input() -> None:
    step = [{"input": 30, "compute": 5}, {"input": 10, "compute": 5}]
    totals = _steps([Rank(), Rank()], [step] * 11)
    assert totals.phases[:, Phase.INPUT] == pytest.approx([0.33, 0.33 - 0.02])
    assert totals.waited == pytest.approx([0, 0])
    assert totals.blamed[0, Phase.INPUT] == pytest.approx(0.2)


def test_a_wait_for_a_callback_of_one_rank_is_a_wait_for_that_rank() -> None:
    step = [{"compute": 5, "callbacks": 40}, {"compute": 5, "callbacks": 2}]
    totals = _steps([Rank(), Rank()], [step] * 11)
    assert totals.blamed[0, Phase.CALLBACKS] == pytest.approx(9 * 0.038)  # none before the first step
    assert totals.waited == pytest.approx([0, 9 * 0.038])


@pytest.mark.parametrize("size", [65, 200])
def test_of_many_ranks_some_tell_in_each_message_and_nothing_is_lost(size: int) -> None:
    steps = [[{"compute": 1 + rank % 3} for rank in range(size)]] * 9
    totals = _steps([Rank() for _ in range(size)], steps)
    assert totals.num_steps > 0
    assert totals.seconds / totals.num_steps == pytest.approx(0.007, rel=0.2)  # 3 ms of computation, two messages
    assert (totals.phases[:, Phase.COMPUTE] > 0).all()


def test_a_step_that_is_traced_belongs_to_no_step() -> None:
    rank = Rank()
    heard: list[Any] = []
    rank.clock.hear = lambda first, size, told: heard.append(told)
    rank.clock.step_begins()
    rank.clock.tracing()
    rank.spend(500)
    rank.clock.message_begins()
    rank.clock.message_ended()
    rank.clock.step_ended()
    assert heard[0][0, Phase.START] == 500 * MILLISECOND
    assert heard[0][0, : Phase.START].sum() == 0


def test_what_has_not_been_told_yet_can_be_asked_for_between_steps() -> None:
    rank = Rank()
    rank.spend(30)  # building
    assert rank.clock.untold()[Phase.START] == sum(rank.clock.untold()) == 30 * MILLISECOND
    rank.clock.step_begins()
    rank.spend(5)
    rank.clock.count_begins(0, 1)  # tells what was before
    rank.clock.count_ended(1, np.zeros(NUM_NUMBERS, np.int64))
    rank.spend(7)
    rank.clock.step_ended()
    with rank.clock.during(Phase.CALLBACKS):
        rank.spend(2)
    rank.spend(3)
    untold = rank.clock.untold()
    assert {phase: untold[phase] for phase in Phase if untold[phase]} == {
        Phase.COMPUTE: 7 * MILLISECOND,
        Phase.CALLBACKS: 2 * MILLISECOND,
        Phase.REST: 3 * MILLISECOND,
    }
    assert rank.clock.untold() == untold, "asking tells nothing"


def test_a_fit_without_a_step_is_all_start() -> None:
    rank = Rank()
    rank.spend(30)
    assert rank.clock.end()[Phase.START] == 30 * MILLISECOND


def test_an_execution_that_finds_no_data_is_no_step() -> None:
    """One worker's: its batch is the one of the step before."""
    rank = Rank()
    heard: list[Any] = []
    rank.clock.hear = lambda first, size, told: heard.append(told)
    for came_at in (math.inf, 0.0):
        rank.clock.step_begins()
        rank.spend(10)
        rank.clock.input_came_at = lambda came_at=came_at: min(came_at, time.time())
        rank.clock.step_ended()
    assert [int(told[0, NUM_STEPS]) for told in heard] == [1, 0]
    assert heard[1][0, Phase.INPUT] == 10 * MILLISECOND


def test_what_a_callback_trains_is_a_part_of_the_callback() -> None:
    rank = Rank()
    heard: list[Any] = []
    rank.clock.step_begins()
    rank.clock.step_ended()
    rank.clock.hear = lambda first, size, told: heard.append(told)
    with rank.clock.during(Phase.CALLBACKS):
        rank.clock.step_begins()
        rank.spend(10)
        rank.clock.message_begins()
        rank.spend(10)
        rank.clock.message_ended()
        rank.clock.step_ended()
    rank.clock.step_begins()
    rank.clock.step_ended()
    assert heard[0][0, Phase.CALLBACKS] == 20 * MILLISECOND


def test_what_the_kernel_says_is_read_once_a_second() -> None:
    now = 0
    facts = ProcessFacts(lambda: Facts(now, now // 2, 7, 0, 0), lambda: now)
    facts.begin()
    now = 900 * MILLISECOND
    assert facts.since_last() == Facts()
    now = 1100 * MILLISECOND
    assert facts.since_last() == Facts(wall=now, cpu=now // 2)
    assert len(Facts()) == NUM_FACTS == NUM_NUMBERS - len(Phase) - 1


def test_no_step_is_no_time() -> None:
    assert StepAccount(2).settled().num_steps == 0
    assert totals_of([np.zeros((2, NUM_NUMBERS), np.int64)], None, 2).seconds == 0


def test_messages_out_of_training_steps_are_no_steps() -> None:
    """A validation counts rows, too: it made steps of 36 ms steps of 18 ms, and hid a slow rank."""
    ranks = [Rank(), Rank()]
    account = StepAccount(2)
    ranks[0].clock.hear = lambda first, size, told: account.hear(first, told) and None
    totals = _steps(ranks, [[{"compute": 5}, {"compute": 30}]] * 10)
    before = totals.num_steps
    ranks[0].clock.hear = lambda first, size, told: account.hear(first, told) and None
    for rank in ranks:
        rank.clock.switch(Phase.VALIDATION)
    for _ in range(50):
        told = [rank.clock.count_begins(number, 2) for number, rank in enumerate(ranks)]
        assert not np.any(told)
        _met(ranks)
        for rank in ranks:
            rank.clock.count_ended(2, np.sum(told, 0))
    for rank in ranks:
        rank.clock.switch(Phase.REST)
    assert account.settled().num_steps == 0
    assert before == 9


def test_a_rank_that_is_late_to_an_agreement_of_callbacks_is_waited_for() -> None:
    """The others waited within their own callbacks, as it seemed."""
    ranks = [Rank(), Rank()]
    account = StepAccount(2)
    ranks[0].clock.hear = lambda first, size, told: account.hear(first, told) and None
    for _ in range(6):
        for rank in ranks:
            rank.clock.step_begins()
        told = [rank.clock.count_begins(number, 2) for number, rank in enumerate(ranks)]
        _met(ranks)
        for rank in ranks:
            rank.clock.count_ended(2, np.sum(told, 0))
            rank.spend(3)
            rank.clock.step_ended()
        agreeing = [rank.clock.enter(Phase.AGREEMENT) for rank in ranks]
        for rank, milliseconds in zip(ranks, (2, 40), strict=True):
            in_callbacks = rank.clock.enter(Phase.CALLBACKS)
            rank.spend(milliseconds)
            rank.clock.leave(in_callbacks)
        _met(ranks)
        for rank, before in zip(ranks, agreeing, strict=True):
            rank.clock.leave(before)
    totals = account.settled()
    assert totals.waited == pytest.approx([5 * 0.038, 0])
    assert totals.blamed[1, Phase.CALLBACKS] == pytest.approx(5 * 0.038)
    assert totals.phases[:, Phase.CALLBACKS] == pytest.approx([5 * 0.002, 5 * 0.04])


def test_the_clock_is_of_one_fit_at_a_time() -> None:
    rank = Rank()
    assert not rank.clock.begin()
    rank.clock.end()
    assert rank.clock.begin()
