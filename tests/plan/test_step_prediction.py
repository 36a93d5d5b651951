"""Predictions of steps: what must hold for any measured steps, and whether intervals contain what simulated jobs do."""

import math
import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.plan.network_text import read_network
from paceline.plan.step_prediction import (
    COMPUTE,
    INPUT,
    MESSAGES,
    SLOWEST,
    UPDATE,
    Network,
    Prediction,
    advice,
    expected_largest,
    network_seconds,
    predictions,
)
from paceline.plan.step_samples import Parts, StepSamples

GIGABIT = Network(round_trip_seconds=2e-4, bytes_per_second=118e6)
TIMES = st.floats(1e-4, 1)


def samples(
    workers: int,
    steps: list[list[Parts]],
    *,
    num_rows: int | None = 64,
    num_messages: float = 2,
    reduced_bytes: float = 1e6,
) -> StepSamples:
    return StepSamples(workers, len(steps[0]), num_rows, tuple(map(tuple, steps)), num_messages, reduced_bytes, 0.0)


def alike(workers: int, present: int, num_steps: int = 10, **parts: float) -> StepSamples:
    """Steps without any spread."""
    zeros = dict.fromkeys(Parts._fields, 0.0)
    return samples(workers, [[Parts(**{**zeros, **parts})] * present] * num_steps)


def only(measured: StepSamples, hosts: int = 1, network: Network | None = None) -> Prediction:
    [found] = predictions([measured], hosts, network)
    return found


@st.composite
def measured(draw: st.DrawFn) -> StepSamples:
    """Of a job whose workers leave each message together, as clocks have it."""
    present = draw(st.integers(1, 3))
    workers = present * draw(st.integers(1, 5))
    steps = []
    for _ in range(draw(st.integers(1, 8))):
        own = [draw(st.tuples(TIMES, TIMES, TIMES, TIMES)) for _ in range(present)]
        message, count = draw(TIMES), draw(TIMES)
        late = max(input_ + update + between for input_, _, update, between in own)
        slow = max(compute for _, compute, _, _ in own)
        steps.append(
            [
                Parts(
                    input_,
                    late - (input_ + update + between) + count,
                    compute,
                    slow - compute + message,
                    update,
                    between,
                )
                for input_, compute, update, between in own
            ]
        )
    return samples(workers, steps)


@settings(deadline=None, max_examples=30)
@given(measured())
def test_a_job_of_which_all_workers_were_there_takes_what_it_took(one: StepSamples) -> None:
    whole = StepSamples(one.present, one.present, one.num_rows, one.steps, one.num_messages, one.reduced_bytes, 0.0)
    taken = fmean(sum(rank) for step in one.steps for rank in step)
    found = only(whole)
    assert found.seconds.value == pytest.approx(taken)
    assert sum(found.shares.values()) == pytest.approx(1)


@settings(deadline=None, max_examples=30)
@given(measured(), st.floats(1e6, 1e10), st.floats(1, 10), st.integers(2, 8))
def test_a_faster_network_is_never_slower(one: StepSamples, speed: float, factor: float, hosts: int) -> None:
    slow, fast = Network(1e-3, speed), Network(1e-3 / factor, speed * factor)
    assert only(one, hosts, fast).seconds.value <= only(one, hosts, slow).seconds.value * (1 + 1e-9)


@settings(deadline=None, max_examples=30)
@given(measured(), st.integers(2, 6))
def test_more_workers_of_the_same_kind_are_never_sooner_together(one: StepSamples, times: int) -> None:
    more = StepSamples(one.workers * times, one.present, one.num_rows, one.steps, 2, one.reduced_bytes, 0.0)
    hosts = more.workers // more.present
    assert (
        only(more, hosts, GIGABIT).seconds.value >= only(one, one.workers // one.present, GIGABIT).seconds.value - 1e-9
    )


@settings(deadline=None, max_examples=30)
@given(measured())
def test_the_value_is_within_its_interval(one: StepSamples) -> None:
    for estimate in (found := only(one)).seconds, found.speedup, found.efficiency:
        assert estimate.low <= estimate.value <= estimate.high


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=6), st.integers(1, 3))
def test_the_expected_largest_is_that_of_all_ways_to_draw(values: list[float], number: int) -> None:
    drawn: list[float] = [-math.inf]
    for _ in range(number):
        drawn = [max(before, value) for before in drawn for value in values]
    assert expected_largest(values, number) == pytest.approx(fmean(drawn))


def noisy_host(chance: random.Random, present: int) -> list[Parts]:
    """One step of the workers of a host: a skewed time of computing, sometimes a late batch."""
    own = [(chance.lognormvariate(-4, 0.4), 0.004 if chance.random() < 0.1 else 0.0, 0.002) for _ in range(present)]
    late = max(input_ + update for _, input_, update in own)
    slow = max(compute for compute, _, _ in own)
    return [
        Parts(input_, late - input_ - update + 1e-4, compute, slow - compute + 1e-3, update, 0.0)
        for compute, input_, update in own
    ]


def test_intervals_contain_what_simulated_jobs_take() -> None:
    """Of one host's few steps alone, for a job on eight such hosts without a network: in most cases."""
    hosts, present, num_cases = 8, 2, 40
    chance = random.Random(1)
    truth = 0.0
    for _ in range(4000):
        ranks = [rank for _ in range(hosts) for rank in noisy_host(chance, present)]
        truth += max(rank.before_messages for rank in ranks) + max(rank.compute for rank in ranks) + 1.1e-3
    truth /= 4000
    found = [
        only(
            samples(hosts * present, [noisy_host(random.Random(f"{case} {step}"), present) for step in range(60)]),
            hosts,
        )
        for case in range(num_cases)
    ]
    assert sum(one.seconds.low <= truth <= one.seconds.high for one in found) >= 0.8 * num_cases
    assert fmean(one.seconds.value for one in found) == pytest.approx(truth, rel=0.05)
    from_the_mean = fmean(
        fmean(rank.compute for step in samples_of(case) for rank in step) for case in range(num_cases)
    )
    assert from_the_mean + 0.002 + 1.1e-3 < 0.7 * truth  # what the mean would have said


def samples_of(case: int) -> list[list[Parts]]:
    return [noisy_host(random.Random(f"{case} {step}"), 2) for step in range(60)]


def test_messages_between_hosts_take_what_any_all_reduce_must_send() -> None:
    large = samples(2, [[Parts(0, 0, 0, 0, 0, 0)]], num_messages=1, reduced_bytes=118e6)
    assert network_seconds(large, 2, GIGABIT) == pytest.approx(1.0, rel=0.01)
    assert network_seconds(large, 4, GIGABIT) == pytest.approx(1.5, rel=0.01)
    assert network_seconds(large, 1, GIGABIT) == 0
    small = samples(2, [[Parts(0, 0, 0, 0, 0, 0)]], num_messages=10, reduced_bytes=80)
    assert network_seconds(small, 2, GIGABIT) == pytest.approx(10 * 1.4e-4, rel=0.1)
    alone = samples(1, [[Parts(0, 0, 0, 0, 0, 0)]], num_messages=0, reduced_bytes=0)
    assert network_seconds(alone, 4, GIGABIT) == 0


def test_input_is_made_while_messages_are_under_way() -> None:
    waiting = alike(2, 1, input=0.004, compute=0.01)
    crossing = network_seconds(waiting, 2, GIGABIT)
    assert crossing > 0.004
    assert only(waiting, 2, GIGABIT).seconds.value == pytest.approx(0.01 + crossing)


@pytest.mark.parametrize(
    ("parts", "limit"),
    [
        ({"compute": 0.02, "update": 0.001}, COMPUTE),
        ({"compute": 0.002, "update": 0.004}, UPDATE),
        ({"compute": 0.002, "messages": 0.004}, MESSAGES),
        ({"compute": 0.002, "input": 0.004}, INPUT),
    ],
)
def test_what_limits_is_named_with_what_helps(parts: dict[str, float], limit: str) -> None:
    found = only(alike(2, 2, **parts))
    assert found.limit == limit
    [sentence] = advice([[found]])
    assert sentence.startswith("Fastest: 2 workers. ")


def test_who_waits_for_the_slowest_is_told() -> None:
    fast, slow = (Parts(0, 0, compute, 0, 0, 0) for compute in (0.001, 0.02))
    found = only(samples(8, [[slow], *[[fast]] * 9], reduced_bytes=1e3), 8, GIGABIT)
    assert found.limit == SLOWEST


def test_advice_names_the_fastest_job_and_how_far_efficiency_goes() -> None:
    jobs = [alike(1, 1, compute=0.08), alike(2, 2, compute=0.04, update=0.002), alike(8, 2, compute=0.01, update=0.02)]
    told = advice([predictions(jobs, 1, None)])
    assert told[0].startswith("Fastest: 8 workers, 2.7 times as fast as 1 worker (efficiency 33%). The update limits")
    assert told[1] == "Up to 2 workers, efficiency is 80% or more."
    assert told[2].startswith("This host runs 2 workers at once")


def test_where_one_worker_is_fastest_advice_says_why_more_are_not() -> None:
    jobs = [alike(1, 1, compute=0.01), alike(2, 2, compute=0.005, messages=0.04)]
    [told] = advice([predictions(jobs, 1, None)])
    assert told.startswith("Fastest: 1 worker. At 2 workers messages limit it: a larger global batch")


def test_rows_count_where_batches_grow_with_the_workers() -> None:
    step = [[Parts(0, 0, 0.01, 0, 0, 0)]] * 10
    jobs = [samples(workers, step, num_rows=64 * workers) for workers in (1, 4)]
    assert predictions(jobs, 4, Network(0.0, 1e15))[1].speedup.value == pytest.approx(4, rel=0.02)


def test_the_same_steps_give_the_same_numbers() -> None:
    jobs = [samples(4, samples_of(1)), samples(8, samples_of(2))]
    assert predictions(jobs, 4, GIGABIT) == predictions(jobs, 4, GIGABIT)


@pytest.mark.parametrize("text", ["1Gbit,0.2ms", "1000 Mbit/s, 200us", "1gbps,0.0002s"])
def test_networks_as_users_write_them(text: str) -> None:
    found = read_network(text)
    assert found.round_trip_seconds == pytest.approx(2e-4)
    assert 0.9 * 125e6 < found.bytes_per_second < 125e6


@pytest.mark.parametrize("text", ["", "1Gbit", "0Gbit,1ms", "1GB,1ms", "1Gbit,1", "1Gbit,-1ms", "nan,1ms"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 1Gbit,0\.2ms"):
        read_network(text)
