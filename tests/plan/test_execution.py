"""Plans on threads with real queues give what one process gives, with the weights that the papers say."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from drawn_plans import plans
from hypothesis import given
from hypothesis import strategies as st
from plan_checks import faults
from plan_threads import PRIME, Weights, execute

from paceline.plan.actions import Action, Plan
from paceline.plan.planning import make_plan
from paceline.plan.schedules import NAMES, schedule_named
from paceline.plan.shape import Shape

SYNCHRONOUS = tuple(name for name in NAMES if schedule_named(name).is_synchronous)


def _one_process(
    shape: Shape,
    micro_batches: int,
    batches: int,
    weights: Weights,
    delays: dict[int, int] | None = None,
    sizes: Sequence[int] = (),
) -> Weights:
    """Batch after batch; chunk c computes with the weights that lack its last `delays[c]` updates.

    `sizes`: how many micro-batches each batch has of those that the plan gives it.
    """
    versions = [weights]
    for batch in range(batches):
        used = {chunk: versions[max(0, batch - (delays or {}).get(chunk, 0))][chunk] for chunk in weights}
        sums: dict[int, int] = defaultdict(int)
        first = batch * micro_batches
        for number in range(first, first + (sizes[batch] if sizes else micro_batches)):
            x: dict[int, int] = {}
            gradients: dict[int, int] = {}
            for chunk in range(shape.num_chunks):
                sources = shape.sources_of(chunk)
                x[chunk] = sum(x[one] * (used[one] + x[one]) for one in sources) if sources else number + 1
            for chunk in reversed(range(shape.num_chunks)):
                targets = shape.targets_of(chunk)
                gradients[chunk] = sum(gradients[one] * (used[one] + 2 * x[one]) for one in targets) if targets else 1
                sums[chunk] += gradients[chunk] * x[chunk]
        versions.append({chunk: (weight - sums[chunk]) % PRIME for chunk, weight in versions[-1].items()})
    return versions[-1]


def _weights(num_chunks: int) -> Weights:
    return {chunk: 3 + 5 * chunk for chunk in range(num_chunks)}


@given(plans(SYNCHRONOUS))
def test_synchronous_schedules_give_what_one_process_gives(plan: Plan) -> None:
    weights = _weights(plan.shape.num_chunks)
    assert execute(plan, weights) == _one_process(plan.shape, plan.micro_batches, 1, weights)


@given(plans(SYNCHRONOUS), st.data())
def test_what_the_checker_accepts_gives_the_right_result(plan: Plan, data: st.DataObject) -> None:
    """Any action is moved anywhere: then the checker objects, or nothing changes."""
    stage = data.draw(st.integers(0, len(plan.actions) - 1))
    actions = list(plan.actions[stage])
    places = st.integers(0, len(actions) - 1)
    actions.insert(data.draw(places), actions.pop(data.draw(places)))
    moved = replace(plan, actions=(*plan.actions[:stage], tuple(actions), *plan.actions[stage + 1 :]))
    if not faults(moved):
        weights = _weights(plan.shape.num_chunks)
        assert execute(moved, weights) == _one_process(plan.shape, plan.micro_batches, 1, weights)


@given(stages=st.integers(1, 5), batches=st.integers(1, 8), vertical_sync=st.booleans(), recompute=st.booleans())
def test_pipedream_computes_backward_with_the_weights_of_the_forward(
    stages: int, batches: int, vertical_sync: bool, recompute: bool
) -> None:
    """SOSP 2019, 3.3: stage s of S lacks S - 1 - s updates; with vertical sync all lack as many as the first one."""
    schedule = schedule_named("pipedream", vertical_sync=vertical_sync)
    plan = make_plan(schedule, stages, 1, batches=batches, recompute=recompute)
    delays = {stage: stages - 1 - (0 if vertical_sync else stage) for stage in range(stages)}
    weights = _weights(stages)
    assert execute(plan, weights) == _one_process(plan.shape, 1, batches, weights, delays)


@given(stages=st.integers(2, 5), more=st.integers(0, 4), batches=st.integers(1, 4))
def test_2bw_lacks_one_update(stages: int, more: int, batches: int) -> None:
    plan = make_plan(schedule_named("pipedream_2bw"), stages, stages + more, batches=batches)
    weights = _weights(stages)
    delays = dict.fromkeys(range(stages), 1)
    assert execute(plan, weights) == _one_process(plan.shape, stages + more, batches, weights, delays)


@given(plans(), st.data())
def test_a_plan_is_right_without_some_micro_batches(plan: Plan, data: st.DataObject) -> None:
    """Data end early, and batches have fewer rows than micro-batches: the executor leaves out what there is not."""
    sizes = data.draw(st.lists(st.integers(1, plan.micro_batches), min_size=1, max_size=plan.batches))

    def is_there(action: Action) -> bool:
        batch, index = plan.place_of(action)
        return batch < len(sizes) and index < sizes[batch]

    left = tuple(tuple(filter(is_there, actions)) for actions in plan.actions)
    shorter = replace(plan, batches=len(sizes), actions=left)
    computed = [one for stage in range(plan.shape.num_stages) for one in shorter.computations(stage)]
    delays = {
        chunk: max(plan.place_of(one)[0] - one.version for one in plan.computations(stage) if one.chunk == chunk)
        for chunk, stage in enumerate(plan.shape.stage_of)
    }
    assert {plan.place_of(one) for one in computed} == {(at, n) for at, size in enumerate(sizes) for n in range(size)}
    weights = _weights(plan.shape.num_chunks)
    expected = _one_process(plan.shape, plan.micro_batches, len(sizes), weights, delays, sizes)
    assert execute(shorter, weights) == expected


@given(plans(("pipedream", "pipedream_2bw")))
def test_asynchronous_plans_of_any_shape_end(plan: Plan) -> None:
    assert execute(plan, _weights(plan.shape.num_chunks)).keys() == set(range(plan.shape.num_chunks))
