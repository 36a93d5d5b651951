"""The line about the time of steps says how long each stage waits, beside what the plan expects."""

import numpy as np
import pytest

from paceline.comm.process_facts import Facts, ProcessFacts
from paceline.comm.step_account import StepAccount, Totals
from paceline.comm.step_clock import NUM_NUMBERS, Phase, StepClock
from paceline.pipeline.stage_waits import waits_text
from paceline.plan.costs import ChunkCost, Costs
from paceline.plan.planning import Outline
from paceline.plan.schedules import schedule_named
from paceline.plan.simulation import simulate

MILLISECOND = 1_000_000


class Stage:
    """A rank of a pipeline by a clock that nobody but the test moves."""

    def __init__(self) -> None:
        self.now = 0
        self.clock = StepClock(lambda: self.now, ProcessFacts(lambda: Facts(), lambda: 0))
        self.clock.begin()

    def spend(self, milliseconds: int) -> None:
        self.now += milliseconds * MILLISECOND


def totals_of_steps(computed: list[int], waited: list[int], *, num_steps: int) -> Totals:
    """What the chief hears of steps in which each rank reads for a millisecond, waits, computes, and sums."""
    ranks = [Stage() for _ in computed]
    account = StepAccount(len(ranks))
    ranks[0].clock.hear = lambda first, size, told: account.hear(first, told) and None
    for _ in range(num_steps):
        told = np.zeros(len(ranks) * NUM_NUMBERS, np.int64)
        for number, rank in enumerate(ranks):
            rank.clock.step_begins()
            rank.spend(1)
            rank.clock.input_ended()
            rank.clock.others_begin()
            rank.spend(waited[number])
            rank.clock.others_ended()
            rank.spend(computed[number])
            told += rank.clock.tells(number, len(ranks))
            rank.clock.others_begin()
        for rank in ranks:
            rank.clock.others_ended()
            rank.clock.heard(len(ranks), told, num_steps=1)
            rank.spend(2)
            rank.clock.step_ended()
    return account.settled()


def test_what_stages_wait_is_of_no_rank_and_adds_up() -> None:
    totals = totals_of_steps([30, 10], [5, 25], num_steps=11)
    assert totals.num_steps == 10
    assert totals.own[:, Phase.OTHERS] == pytest.approx([0.055, 0.275])
    assert totals.own[:, Phase.INPUT] == pytest.approx([0.011, 0.011])
    assert totals.own[:, Phase.UPDATE] == pytest.approx([0.020, 0.020])
    assert totals.waited == pytest.approx([0, 0])
    assert not totals.blamed.any()
    assert totals.own.sum(1) == pytest.approx([0.416, 0.416])


def test_each_stage_is_told_of_as_the_mean_of_its_replicas() -> None:
    totals = totals_of_steps([30, 30, 20, 10], [7, 7, 17, 27], num_steps=21)
    assert waits_text(totals, 2, 2, None) == "; stages wait 18 %, 55 %"


def test_what_the_plan_expects_stands_beside() -> None:
    expected = simulate(
        Outline(schedule_named("1f1b"), 2, 4), Costs((ChunkCost(1, 1, 1),) * 2)
    )  # each waits for one of five turns
    totals = totals_of_steps([30, 10], [7, 27], num_steps=21)
    assert waits_text(totals, 2, 1, expected) == "; stages wait 18 %, 68 % (expected: 20 %, 20 %)"


def test_nothing_is_told_of_ranks_that_have_not_told() -> None:
    assert waits_text(Totals(1), 2, 2, None) == ""
    assert waits_text(Totals(2), 2, 1, None) == ""
    assert waits_text(totals_of_steps([1, 1], [0, 0], num_steps=3), 1, 2, None) == ""
