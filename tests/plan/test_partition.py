"""The dynamic programme finds what trying all splits finds; limits, ties and refusals."""

import math
from collections.abc import Iterator
from itertools import accumulate, combinations, pairwise

import pytest
from drawn_plans import profiles, schedules
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ConfigurationError
from paceline.plan.costs import Link
from paceline.plan.memory import peaks_of
from paceline.plan.partition import Demand, best_split, least_greatest
from paceline.plan.planning import Outline
from paceline.plan.profile import Layer, Profile
from paceline.plan.schedules import schedule_named
from paceline.plan.simulation import simulate
from paceline.plan.split import Split, costs_of


def _all_splits(profile: Profile, chunks: int, replicas: int) -> Iterator[Split]:
    """Every way to cut that keeps ties together."""
    inner = range(1, len(profile.layers))
    for cuts in combinations(inner, chunks - 1):
        if not any(min(tie) < cut <= max(tie) for tie in profile.ties for cut in cuts):
            yield Split((*cuts, len(profile.layers)), replicas)


def _greatest_bytes(demand: Demand, split: Split) -> float:
    return demand.chunks_per_stage * max(
        demand.num_bytes(chunk, layers.start, layers.stop) for chunk, layers in enumerate(split.chunks)
    )


def _slowest(demand: Demand, split: Split) -> float:
    return max(demand.seconds(chunk, layers.start, layers.stop) for chunk, layers in enumerate(split.chunks))


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    return Demand(
        draw(profiles()),
        draw(schedules()),
        draw(st.integers(1, 3)),
        draw(st.integers(3, 6)),
        Link(1.0, draw(st.sampled_from([0.5, 4.0]))),
        draw(st.booleans()),
        draw(st.sampled_from([math.inf, 60, 100, 150])),
        draw(st.integers(1, 2)),
    )


@given(demands())
def test_no_split_is_better(demand: Demand) -> None:
    splits = list(_all_splits(demand.profile, len(demand.places), demand.replicas))
    least = min((_greatest_bytes(demand, other) for other in splits), default=None)
    fastest = min((_slowest(demand, other) for other in splits), default=math.inf)
    if fastest < math.inf:
        seconds, split = best_split(demand)
        assert split in splits
        assert seconds == _slowest(demand, split) == fastest
        return
    expected = "cannot be divided" if least is None else f'memory_limit="{math.ceil(least / 1e6)}MB"'
    with pytest.raises(ConfigurationError, match=expected):
        best_split(demand)


def _layers(*seconds: float, **sizes: int) -> tuple[Layer, ...]:
    return tuple(Layer(f"layer{at}", one, one, one, (at - 1,) if at else (), **sizes) for at, one in enumerate(seconds))


def test_a_split_asks_for_few_values() -> None:
    """Hundreds of stages: a few values for each place where a chunk can begin, not a search through all its ends."""
    num_layers, chunks = 400, 20
    sums = list(accumulate((1 + at * at * 0.618 % 1 for at in range(num_layers)), initial=0.0))
    asked = 0

    def value(chunk: int, first: int, last: int) -> float:
        nonlocal asked
        del chunk
        asked += 1
        return sums[last] - sums[first]

    found = least_greatest(range(1, num_layers + 1), chunks, value)
    assert found
    assert found[0] == max(sums[last] - sums[first] for first, last in pairwise((0, *found[1])))
    places = chunks * (num_layers - chunks + 1)
    assert asked < 5 * places


def test_the_limit_of_the_message_does() -> None:
    profile = Profile(_layers(1, 2, 3, 4, stash_bytes=2_500_000, parameter_bytes=1_000_000))
    demand = Demand(profile, schedule_named("gpipe"), 2, 4, memory_limit_bytes=1e6)
    with pytest.raises(ConfigurationError, match='smallest limit that would do is memory_limit="24MB"'):
        best_split(demand)
    with pytest.raises(ConfigurationError, match='memory_limit="24MB"'):
        best_split(Demand(profile, schedule_named("gpipe"), 2, 4, memory_limit_bytes=23.9e6))
    assert best_split(Demand(profile, schedule_named("gpipe"), 2, 4, memory_limit_bytes=24e6))[1].cuts == (2, 4)


def test_1f1b_fits_where_gpipe_does_not() -> None:
    profile = Profile(_layers(1, 1, stash_bytes=10))
    assert best_split(Demand(profile, schedule_named("1f1b"), 2, 8, memory_limit_bytes=20))[0] == 3
    with pytest.raises(ConfigurationError, match="no split into 2 chunks for gpipe with 8 micro-batches"):
        best_split(Demand(profile, schedule_named("gpipe"), 2, 8, memory_limit_bytes=20))


def test_a_memory_limit_moves_the_cut() -> None:
    """Stage 0 of 1F1B stashes twice what stage 1 does."""
    profile = Profile(_layers(1, 1, 1, 1, stash_bytes=10))
    assert best_split(Demand(profile, schedule_named("1f1b"), 2, 8))[1].cuts == (2, 4)
    assert best_split(Demand(profile, schedule_named("1f1b"), 2, 8, memory_limit_bytes=30))[1].cuts == (1, 4)


def test_tied_layers_stay_together() -> None:
    profile = Profile(_layers(1, 1, 1, 1, 1, 1), ties=((1, 4),))
    assert best_split(Demand(profile, schedule_named("1f1b"), 2, 2))[1].cuts in ((1, 6), (5, 6))
    with pytest.raises(ConfigurationError, match=r"6 layers, which can be cut in 2 places, .* into 4 chunks"):
        best_split(Demand(profile, schedule_named("1f1b"), 4, 4))


def test_a_wide_tensor_is_not_cut() -> None:
    """The balanced cut is behind layer 1, but what crosses there takes longer than a stage computes."""
    wide = [Layer(f"layer{at}", 1, 1, 1, (at - 1,) if at else (), (1, 40, 1, 1)[at]) for at in range(4)]
    assert best_split(Demand(Profile(tuple(wide)), schedule_named("1f1b"), 2, 4, Link()))[1].cuts == (2, 4)
    slow = Demand(Profile(tuple(wide)), schedule_named("1f1b"), 2, 4, Link(0.0, 1.0))
    assert best_split(slow)[1].cuts != (2, 4)


@given(profiles(), st.integers(1, 3), st.integers(1, 2), st.sampled_from(["gpipe", "1f1b", "zb_h1", "pipedream"]))
def test_the_bytes_of_a_split_bound_those_of_its_plan(profile: Profile, stages: int, replicas: int, name: str) -> None:
    if stages > len(profile.cuts):
        return
    schedule, recompute = schedule_named(name), replicas == 2
    demand = Demand(profile, schedule, stages, 3, Link(), recompute, replicas=replicas)
    _, split = best_split(demand)
    costs = costs_of(profile, split, Link())
    batches = 1 if schedule.is_synchronous else 9
    outline = Outline(schedule, stages, 3, batches=batches, edges=tuple(costs.edge_bytes), recompute=recompute)
    peaks = [peak.total_bytes for peak in peaks_of(outline, costs)]
    bounds = [demand.num_bytes(at, one.start, one.stop) for at, one in enumerate(split.chunks)]
    if recompute or schedule.splits_backward:
        assert all(peak <= bound for peak, bound in zip(peaks, bounds, strict=True))
    else:
        assert peaks == bounds


@given(profiles(), st.integers(1, 4), st.integers(1, 2))
def test_a_pipeline_without_flush_is_as_fast_as_its_slowest_stage(profile: Profile, stages: int, replicas: int) -> None:
    """What the programme minimises is what the simulation of PipeDream measures, if no link is the bottleneck."""
    if stages > len(profile.cuts):
        return
    schedule = schedule_named("pipedream")
    seconds, split = best_split(Demand(profile, schedule, stages, 1, replicas=replicas))
    costs = costs_of(profile, split, Link())
    # Full only when the slowest stage has made all others wait: the stashes are up to `stages` batches deep.
    outline = Outline(schedule, stages, 1, batches=40 * stages, edges=tuple(costs.edge_bytes))
    assert simulate(outline, costs).step_seconds == pytest.approx(seconds, rel=1e-6)
