"""Times of a plan, worked out by hand and bounded for any."""

from itertools import pairwise

import pytest
from drawn_plans import costs, plans
from hypothesis import given
from hypothesis import strategies as st

from paceline.plan.actions import Plan, Receive
from paceline.plan.costs import ChunkCost, Costs, Link
from paceline.plan.memory import peak_of
from paceline.plan.planning import make_plan
from paceline.plan.schedules import schedule_named
from paceline.plan.shape import chain
from paceline.plan.simulation import simulate


def _costs(link: Link, *chunks: tuple[float, float, float], num_bytes: int = 1, update_seconds: float = 0.0) -> Costs:
    made = tuple(ChunkCost(*seconds, update_seconds=update_seconds) for seconds in chunks)
    return Costs(made, dict.fromkeys(chain(len(made)), num_bytes), link)


def test_messages_arrive_after_latency_and_bytes_and_overlap_with_computation() -> None:
    plan = make_plan(schedule_named("gpipe"), 2, 2)
    timeline = simulate(plan, _costs(Link(1.0, 4.0), (3, 1, 1), (3, 1, 1), num_bytes=8))
    # Stage 0: F0 until 3, F1 until 6. A message takes 1 + 8 / 4 seconds: F0 of stage 1 begins at 6, F1 at 9.
    # BW0 at 12 to 14, its gradient is there at 17; BW1 until 16, there at 19 = the end of stage 0's BW0.
    assert [span[1:] for span in timeline.spans[0][:4]] == [(0, 3), (3, 6), (17, 19), (19, 21)]
    assert [span[1:] for span in timeline.spans[1][:4]] == [(6, 9), (9, 12), (12, 14), (14, 16)]


def test_messages_of_one_link_go_one_after_the_other() -> None:
    plan = make_plan(schedule_named("gpipe"), 2, 3)
    timeline = simulate(plan, _costs(Link(0.0, 1.0), (1, 1, 1), (1, 1, 1), num_bytes=5))
    assert [begin for _, begin, _ in timeline.spans[1]][:3] == [6, 11, 16]


def test_the_update_counts() -> None:
    plan = make_plan(schedule_named("1f1b"), 1, 2)
    timeline = simulate(plan, _costs(Link(), (1, 1, 1), update_seconds=4.0))
    assert timeline.step_seconds == 10
    assert timeline.busy_seconds == (10,)
    assert timeline.bubble == 0


@given(plans(), st.data())
def test_no_plan_is_faster_than_its_work_or_its_longest_way(plan: Plan, data: st.DataObject) -> None:
    cost = data.draw(costs(plan))
    timeline = simulate(plan, cost)
    assert timeline.end_seconds >= max(timeline.busy_seconds)
    first = [cost.chunks[chunk] for chunk in plan.shape.chunks_of(0)]
    assert timeline.end_seconds >= sum(chunk.forward_seconds for chunk in first)
    assert -1e-9 <= timeline.bubble < 1
    for spans in timeline.spans:
        assert all(earlier[2] <= later[1] for earlier, later in pairwise(spans))


@given(plans(), st.data())
def test_a_slower_link_makes_no_plan_faster(plan: Plan, data: st.DataObject) -> None:
    cost = data.draw(costs(plan))
    slower = Costs(cost.chunks, cost.edge_bytes, Link(cost.link.latency_seconds + 1, cost.link.bytes_per_second / 2))
    assert simulate(plan, slower).end_seconds >= simulate(plan, cost).end_seconds


@given(plans(("gpipe", "1f1b", "zb_h1")), st.data())
def test_recomputation_trades_time_for_memory(plan: Plan, data: st.DataObject) -> None:
    cost = data.draw(costs(plan))
    schedule, micro_batches = schedule_named(plan.schedule), plan.micro_batches
    kept, recomputed = (
        make_plan(schedule, plan.shape.num_stages, micro_batches, edges=plan.shape.edges, recompute=recompute)
        for recompute in (False, True)
    )
    assert simulate(recomputed, cost).end_seconds >= simulate(kept, cost).end_seconds
    for stage in range(plan.shape.num_stages):
        assert peak_of(recomputed, cost, stage).stash_bytes <= peak_of(kept, cost, stage).stash_bytes


def test_peaks_in_bytes() -> None:
    """Stage 0 of two, 1F1B: two stashes, and a weight, its gradient and its slot."""
    chunk = ChunkCost(1, 1, 1, input_bytes=3, stash_bytes=10, parameter_bytes=100, slot_bytes=50)
    cost = Costs((chunk, chunk))
    plan = make_plan(schedule_named("1f1b"), 2, 4)
    assert [peak_of(plan, cost, stage).total_bytes for stage in (0, 1)] == [270, 260]
    plan = make_plan(schedule_named("1f1b"), 2, 4, recompute=True)
    assert [peak_of(plan, cost, stage).total_bytes for stage in (0, 1)] == [263, 260]
    plan = make_plan(schedule_named("pipedream"), 2, 1, batches=4)
    assert [peak_of(plan, cost, stage).total_bytes for stage in (0, 1)] == [370, 260]


def test_what_cannot_end_is_refused() -> None:
    plan = make_plan(schedule_named("1f1b"), 2, 1)
    first = tuple(sorted(plan.actions[0], key=lambda action: not isinstance(action, Receive)))
    broken = Plan(plan.schedule, plan.shape, 1, 1, (first, plan.actions[1]))
    with pytest.raises(ValueError, match="deadlocks: stage 0 waits in Receive"):
        simulate(broken, _costs(Link(), (1, 1, 1), (1, 1, 1)))
