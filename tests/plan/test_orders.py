"""The schedules are those of the papers: their times, stashes and versions are what theory says."""

from math import ceil

import pytest
from drawn_plans import equal_costs
from hypothesis import given
from hypothesis import strategies as st

from paceline.plan.actions import Compute
from paceline.plan.memory import peaks_of
from paceline.plan.planning import Outline, make_plan
from paceline.plan.schedules import NAMES, Place, schedule_named
from paceline.plan.simulation import Timeline, simulate

STAGES, MICRO_BATCHES = st.integers(1, 6), st.integers(1, 14)


def _timeline(name: str, stages: int, micro_batches: int, chunks_per_stage: int = 2, batches: int = 1) -> Timeline:
    schedule = schedule_named(name, chunks_per_stage=chunks_per_stage)
    outline = Outline(schedule, stages, micro_batches, batches=batches)
    part = stages / outline.shape.num_chunks  # a stage's F, B and W take 1 each
    return simulate(outline, equal_costs(outline.shape.num_chunks, part, part, part))


def _stashed(outline: Outline) -> list[int]:
    return [peak.num_stashed for peak in peaks_of(outline, equal_costs(outline.shape.num_chunks))]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@given(stages=STAGES, micro_batches=MICRO_BATCHES)
def test_the_bubble_without_split_backward(name: str, stages: int, micro_batches: int) -> None:
    bubble = _timeline(name, stages, micro_batches).bubble
    assert bubble == pytest.approx((stages - 1) / (micro_batches + stages - 1))


@given(stages=STAGES, micro_batches=MICRO_BATCHES)
def test_gpipe_stashes_all_and_1f1b_what_is_under_way(stages: int, micro_batches: int) -> None:
    assert _stashed(Outline(schedule_named("gpipe"), stages, micro_batches)) == [micro_batches] * stages
    under_way = [min(stages - stage, micro_batches) for stage in range(stages)]
    assert _stashed(Outline(schedule_named("1f1b"), stages, micro_batches)) == under_way


@given(stages=STAGES, micro_batches=MICRO_BATCHES)
def test_zb_h1_fills_two_thirds_of_1f1bs_bubble_in_as_much_memory(stages: int, micro_batches: int) -> None:
    """The paper: a bubble of (S - 1) (F + B - W), and no stage above what 1F1B's first one stashes."""
    if micro_batches >= stages:
        assert _timeline("zb_h1", stages, micro_batches).step_seconds == 3 * micro_batches + stages - 1
    assert max(_stashed(Outline(schedule_named("zb_h1"), stages, micro_batches))) == min(stages, micro_batches)


@given(stages=STAGES, micro_batches=MICRO_BATCHES)
def test_zb_v_waits_for_the_first_forward_only(stages: int, micro_batches: int) -> None:
    """The paper: no bubble. The last stage begins after S - 1 chunks' forwards, each half as long."""
    if micro_batches >= 2 * stages - 1:
        assert _timeline("zb_v", stages, micro_batches).step_seconds == 3 * micro_batches + (stages - 1) / 2
    assert max(_stashed(Outline(schedule_named("zb_v"), stages, micro_batches))) <= 2 * stages


@given(stages=STAGES, rounds=st.integers(1, 3), chunks=st.integers(1, 4))
def test_interleaving_divides_the_bubble(stages: int, rounds: int, chunks: int) -> None:
    """Megatron-LM: the bubble's time is 1/v of 1F1B's, in a stash that is larger by 1 + (S - 1) / (v S)."""
    micro_batches = rounds * stages
    seconds = _timeline("interleaved", stages, micro_batches, chunks).step_seconds
    assert seconds == pytest.approx(3 * micro_batches + 3 * (stages - 1) / chunks)
    outline = Outline(schedule_named("interleaved", chunks_per_stage=chunks), stages, micro_batches)
    assert max(_stashed(outline)) <= chunks * stages + stages - 1


@pytest.mark.parametrize(("micro_batches", "ratio"), [(4, 0.87), (8, 0.93)])
def test_zero_bubble_against_1f1b_on_two_stages(micro_batches: int, ratio: float) -> None:
    one_by_one, split = (_timeline(name, 2, micro_batches).step_seconds for name in ("1f1b", "zb_h1"))
    assert split / one_by_one == pytest.approx(ratio, abs=0.005)
    assert _timeline("zb_v", 2, micro_batches).step_seconds < split


@pytest.mark.parametrize("name", ["pipedream", "pipedream_2bw"])
@given(stages=STAGES, more=st.integers(0, 6))
def test_asynchronous_schedules_have_no_bubble_once_full(name: str, stages: int, more: int) -> None:
    timeline = _timeline(name, stages, stages + more, batches=6)
    assert timeline.step_seconds == pytest.approx(3 * (stages + more))
    assert timeline.bubble == pytest.approx(0, abs=1e-9)


@given(stages=STAGES)
def test_pipedream_holds_as_many_versions_as_batches_are_under_way(stages: int) -> None:
    """SOSP 2019, 3.3: S - s versions on stage s; with vertical sync all stages hold the first one's."""
    for vertical_sync in (False, True):
        outline = Outline(schedule_named("pipedream", vertical_sync=vertical_sync), stages, 1, batches=3 * stages)
        peaks = peaks_of(outline, equal_costs(stages))
        under_way = [stages - stage for stage in range(stages)]
        assert [peak.num_stashed for peak in peaks] == under_way
        assert [peak.num_versions for peak in peaks] == ([stages] * stages if vertical_sync else under_way)


@given(stages=st.integers(2, 6), more=st.integers(0, 6))
def test_2bw_holds_two_versions(stages: int, more: int) -> None:
    outline = Outline(schedule_named("pipedream_2bw"), stages, stages + more, batches=5)
    assert [peak.num_versions for peak in peaks_of(outline, equal_costs(stages))] == [2] * stages


@given(stages=STAGES, more=st.integers(0, 6), batches=st.integers(1, 6))
def test_2bw_is_one_update_late(stages: int, more: int, batches: int) -> None:
    """PipeDream-2BW: W(t + 1) = W(t) - ν ∇f(W(t - 1)). One stage alone is plain training, without a delay."""
    micro_batches = stages + more
    plan = make_plan(schedule_named("pipedream_2bw"), stages, micro_batches, batches=batches)
    late = min(1, stages - 1)
    for action in (action for actions in plan.actions for action in actions if isinstance(action, Compute)):
        assert action.version == max(0, action.micro_batch // micro_batches - late)


@given(st.sampled_from(NAMES), STAGES, MICRO_BATCHES)
def test_the_bounds_that_a_split_relies_on(name: str, stages: int, micro_batches: int) -> None:
    schedule = schedule_named(name)
    many = max(micro_batches, schedule.fewest_micro_batches(stages))
    batches = 1 if schedule.is_synchronous else 2 * (1 + ceil(stages / many))
    outline = Outline(schedule, stages, many, batches=batches)
    for stage, peak in enumerate(peaks_of(outline, equal_costs(outline.shape.num_chunks))):
        place = Place(stage, stages, many)
        assert peak.num_stashed <= schedule.most_stashed(place)
        assert peak.num_versions == 1 + schedule.delay(place)
