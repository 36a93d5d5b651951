"""What the chief says of the time of steps."""

import numpy as np
import pytest

from paceline.comm.process_facts import Facts
from paceline.comm.step_account import Totals
from paceline.comm.step_clock import Phase
from paceline.fit.step_words import (
    line_of_epoch,
    line_of_fit,
    line_of_straggler,
    shares_of,
    spent_by_word,
    straggler_in,
)


def _totals(*ranks: dict[Phase, float], waited: tuple[float, ...] = (), steps: int = 50) -> Totals:
    totals = Totals(len(ranks), steps)
    for rank, does in enumerate(ranks):
        for phase, seconds in does.items():
            totals.phases[rank, phase] = totals.own[rank, phase] = seconds
    totals.waited[:] = waited or np.zeros(len(ranks))
    return totals


def _with_slow_rank() -> Totals:
    totals = _totals(
        {Phase.INPUT: 0.1, Phase.COMPUTE: 1.0, Phase.MESSAGES: 0.1},
        {Phase.INPUT: 0.1, Phase.COMPUTE: 1.8, Phase.MESSAGES: 0.1},
        waited=(0.8, 0),
    )
    totals.blamed[1, Phase.COMPUTE] = 0.8
    totals.num_last[1, Phase.COMPUTE] = 40
    return totals


def test_the_line_of_an_epoch_names_the_rank_that_others_wait_for() -> None:
    assert line_of_epoch(_with_slow_rank()) == (
        "step 40 ms: input 5 %, compute 50 %, waiting for rank 1 40 %, messages 5 %"
    )


def test_shares_are_numbers_by_word_too() -> None:
    shares = shares_of(_with_slow_rank())
    assert shares.by_word == pytest.approx({"input": 0.05, "compute": 0.5, "waiting": 0.4, "messages": 0.05})
    assert list(shares.by_word) == ["input", "compute", "waiting", "messages"]
    assert shares.waits_for == 1
    assert shares_of(_totals({Phase.COMPUTE: 1.5})).waits_for is None


def test_ranks_that_wait_for_each_other_have_no_name() -> None:
    totals = _totals({Phase.COMPUTE: 0.9}, {Phase.COMPUTE: 0.9}, waited=(0.1, 0.1))
    totals.blamed[:, Phase.COMPUTE] = 0.1
    assert shares_of(totals).waits_for is None
    assert line_of_epoch(totals) == "step 20 ms: compute 90 %, waiting for each other 10 %"


def test_one_worker_waits_for_nobody() -> None:
    assert line_of_epoch(_totals({Phase.COMPUTE: 1.5, Phase.CALLBACKS: 0.5})) == (
        "step 40 ms: compute 75 %, callbacks 25 %"
    )


def test_an_epoch_without_a_step_has_no_line() -> None:
    assert line_of_epoch(Totals(2)) == ""


def test_the_line_of_a_fit_adds_up() -> None:
    totals = _totals({Phase.COMPUTE: 2.0, Phase.START: 3.0, Phase.VALIDATION: 1.0})
    untold = [0.5 if phase == Phase.VALIDATION else 0.0 for phase in Phase]
    assert line_of_fit(totals, 7.5, untold) == (
        "fit 7.5 s: steps 2.0 s, start 3.0 s, validation 1.5 s, the rest 1.0 s; step 40 ms: compute 100 %"
    )


def test_a_slow_rank_is_named_with_what_the_kernel_says_of_it() -> None:
    totals = _with_slow_rank()
    totals.facts[1] = Facts(wall=2, cpu=1, throttled=0.96)  # type: ignore[arg-type]  # seconds
    slow = straggler_in(totals)
    assert slow is not None
    assert line_of_straggler(slow) == (
        "rank 1 computes 1.8 times as long as the median of the others (its control group is throttled 48 % of the "
        "time): they wait for it for 40 % of each step [straggler]"
    )
    assert line_of_straggler(slow, "hostb").startswith("rank 1 (hostb) computes 1.8 times")


@pytest.mark.parametrize("blamed", [0.0, 0.09])
def test_who_costs_little_is_not_named(blamed: float) -> None:
    totals = _with_slow_rank()
    totals.blamed[1, Phase.COMPUTE] = blamed
    assert straggler_in(totals) is None


def test_who_is_late_now_and_then_is_not_named() -> None:
    totals = _with_slow_rank()
    totals.num_last[1, Phase.COMPUTE] = 20
    assert straggler_in(totals) is None


def test_what_the_chief_has_spent_is_all_that_its_clock_has_counted_but_for_the_last_messages() -> None:
    untold = [0.0] * len(Phase)
    untold[Phase.START], untold[Phase.VALIDATION], untold[Phase.CALLBACKS], untold[Phase.MESSAGES] = 3.0, 1.0, 0.2, 9.0
    assert spent_by_word(_with_slow_rank(), untold) == pytest.approx(
        {
            "input": 0.1,
            "compute": 1.0,
            "waiting": 0.8,
            "messages": 0.1,
            "callbacks": 0.2,
            "tracing": 3.0,
            "validation": 1.0,
        }
    )
