"""Times of a plan, worked out by hand and bounded for any."""

from dataclasses import replace
from itertools import pairwise

import pytest
from drawn_plans import costs, outlines, plan_of
from hypothesis import given
from hypothesis import strategies as st
from walked_plans import spans_of, stash_of, versions_of

from paceline.plan.actions import Update
from paceline.plan.costs import ChunkCost, Costs, GradientSum, Link
from paceline.plan.memory import peaks_of
from paceline.plan.orders import BW, F, Order
from paceline.plan.planning import Outline
from paceline.plan.schedules import NAMES, schedule_named
from paceline.plan.shape import chain
from paceline.plan.simulation import simulate


def _costs(link: Link, *chunks: tuple[float, float, float], num_bytes: int = 1, update_seconds: float = 0.0) -> Costs:
    made = tuple(ChunkCost(*seconds, update_seconds=update_seconds) for seconds in chunks)
    return Costs(made, dict.fromkeys(chain(len(made)), num_bytes), link)


def test_messages_arrive_after_latency_and_bytes_and_overlap_with_computation() -> None:
    outline = Outline(schedule_named("gpipe"), 2, 2)
    timeline = simulate(outline, _costs(Link(1.0, 4.0), (3, 1, 1), (3, 1, 1), num_bytes=8))
    # Stage 0: F0 until 3, F1 until 6. A message takes 1 + 8 / 4 seconds: F0 of stage 1 begins at 6, F1 at 9.
    # BW0 at 12 to 14, its gradient is there at 17; BW1 until 16, there at 19 = the end of stage 0's BW0.
    spans = list(map(list, timeline.spans()))
    assert [span[1:] for span in spans[0][:4]] == [(0, 3), (3, 6), (17, 19), (19, 21)]
    assert [span[1:] for span in spans[1][:4]] == [(6, 9), (9, 12), (12, 14), (14, 16)]


def test_messages_of_one_link_go_one_after_the_other() -> None:
    outline = Outline(schedule_named("gpipe"), 2, 3)
    timeline = simulate(outline, _costs(Link(0.0, 1.0), (1, 1, 1), (1, 1, 1), num_bytes=5))
    assert [begin for _, begin, _ in timeline.spans()[1]][:3] == [6, 11, 16]


def test_the_update_counts() -> None:
    outline = Outline(schedule_named("1f1b"), 1, 2)
    timeline = simulate(outline, _costs(Link(), (1, 1, 1), update_seconds=4.0))
    assert timeline.step_seconds == 10
    assert timeline.busy_seconds == (10,)
    assert timeline.bubble == 0


def test_stages_sum_gradients_of_weights_that_they_share_when_all_are_there() -> None:
    costs = _costs(Link(), (1, 1, 1), (1, 1, 1), (1, 1, 1), update_seconds=1.0)
    timeline = simulate(
        Outline(schedule_named("1f1b"), 3, 1), replace(costs, gradient_sums=(GradientSum((0, 2), 5.0),))
    )
    # Stage 2 has ended its backward at 5, stage 1 at 7, stage 0 at 9: then the sum, and the update.
    assert timeline.update_ends == ((15.0,), (8.0,), (15.0,))


@given(outlines(), st.data())
def test_no_plan_is_faster_than_its_work_or_its_longest_way(outline: Outline, data: st.DataObject) -> None:
    cost = data.draw(costs(outline))
    timeline = simulate(outline, cost)
    assert timeline.end_seconds >= max(timeline.busy_seconds)
    first = [cost.chunks[chunk] for chunk in outline.shape.chunks_of(0)]
    assert timeline.end_seconds >= sum(chunk.forward_seconds for chunk in first)
    assert -1e-9 <= timeline.bubble < 1
    for spans in timeline.spans():
        assert all(earlier[2] <= later[1] for earlier, later in pairwise(spans))


@given(outlines(), st.data())
def test_a_slower_link_makes_no_plan_faster(outline: Outline, data: st.DataObject) -> None:
    cost = data.draw(costs(outline))
    slower = replace(cost, link=Link(cost.link.latency_seconds + 1, cost.link.bytes_per_second / 2))
    assert simulate(outline, slower).end_seconds >= simulate(outline, cost).end_seconds


@given(outlines(("gpipe", "1f1b", "zb_h1")), st.data())
def test_recomputation_trades_time_for_memory(outline: Outline, data: st.DataObject) -> None:
    cost = data.draw(costs(outline))
    kept, recomputed = (replace(outline, recompute=recompute) for recompute in (False, True))
    assert simulate(recomputed, cost).end_seconds >= simulate(kept, cost).end_seconds
    for before, after in zip(peaks_of(kept, cost), peaks_of(recomputed, cost), strict=True):
        assert after.stash_bytes <= before.stash_bytes


def test_peaks_in_bytes() -> None:
    """Stage 0 of two, 1F1B: two stashes, and a weight, its gradient and its slot."""
    chunk = ChunkCost(1, 1, 1, input_bytes=3, stash_bytes=10, parameter_bytes=100, slot_bytes=50)
    cost = Costs((chunk, chunk))
    outline = Outline(schedule_named("1f1b"), 2, 4)
    assert [peak.total_bytes for peak in peaks_of(outline, cost)] == [270, 260]
    outline = Outline(schedule_named("1f1b"), 2, 4, recompute=True)
    assert [peak.total_bytes for peak in peaks_of(outline, cost)] == [263, 260]
    outline = Outline(schedule_named("pipedream"), 2, 1, batches=4)
    assert [peak.total_bytes for peak in peaks_of(outline, cost)] == [370, 260]


def test_what_cannot_end_is_refused() -> None:
    def backward_first(stages: int, micro_batches: int) -> list[Order]:
        del stages, micro_batches
        return [[(1, ((BW, 0), (F, 0)))], [(1, ((F, 1), (BW, 1)))]]

    broken = replace(schedule_named("1f1b"), order=backward_first)
    with pytest.raises(ValueError, match=r"1f1b deadlocks: the stages \[0, 1\] wait for ever"):
        simulate(Outline(broken, 2, 1), _costs(Link(), (1, 1, 1), (1, 1, 1)))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_times_and_memory_are_those_of_the_actions(name: str, data: st.DataObject) -> None:
    """What a plan's actions say one by one, which takes minutes for long plans of many stages."""
    outline = data.draw(outlines((name,)))
    cost, plan = data.draw(costs(outline)), plan_of(outline)
    timeline, expected = simulate(outline, cost), spans_of(plan, cost)
    for stage, spans in enumerate(timeline.spans()):
        assert [(begin, end) for _, begin, end in spans] == [(begin, end) for _, begin, end in expected[stage]]
        updates = [end for action, _, end in expected[stage] if isinstance(action, Update)]
        assert list(timeline.update_ends[stage]) == updates
        assert timeline.busy_seconds[stage] == sum(end - begin for _, begin, end in expected[stage])
    for stage, peak in enumerate(peaks_of(outline, cost)):
        assert (peak.num_stashed, peak.stash_bytes) == stash_of(plan, cost, stage)
        assert peak.num_versions == versions_of(plan, stage)
