"""The checker accepts every plan that is made, and refuses broken ones."""

from dataclasses import replace

import pytest
from drawn_plans import plans
from hypothesis import given
from hypothesis import strategies as st
from plan_checks import faults
from plan_deadlocks import deadlocks

from paceline.plan.actions import Action, Compute, Message, Operation, Plan, Receive, Send, Update
from paceline.plan.planning import make_plan
from paceline.plan.schedules import schedule_named


@given(plans(max_stages=8))
def test_every_plan_is_right(plan: Plan) -> None:
    assert faults(plan) == []


@given(plans(), st.data())
def test_nothing_can_be_left_out_or_done_twice(plan: Plan, data: st.DataObject) -> None:
    """But recomputation, which a plan may do without."""
    stage = data.draw(st.integers(0, len(plan.actions) - 1))
    index = data.draw(st.integers(0, len(plan.actions[stage]) - 1))
    actions = plan.actions[stage]
    if isinstance(actions[index], Compute) and actions[index].operation is Operation.RECOMPUTE:
        return
    for times in (0, 2):
        broken = (*actions[:index], *[actions[index]] * times, *actions[index + 1 :])
        assert faults(_with(plan, stage, broken))


@given(plans(), st.data())
def test_no_version_can_be_another_one(plan: Plan, data: st.DataObject) -> None:
    stage = data.draw(st.integers(0, len(plan.actions) - 1))
    versioned = [at for at, one in enumerate(plan.actions[stage]) if isinstance(one, Compute | Update)]
    index = data.draw(st.sampled_from(versioned))
    actions = list(plan.actions[stage])
    actions[index] = replace(actions[index], version=actions[index].version + data.draw(st.sampled_from([-1, 1])))
    assert faults(_with(plan, stage, tuple(actions)))


@given(plans(max_stages=8))
def test_all_stages_may_wait_for_each_other_where_batches_are_read(plan: Plan) -> None:
    """Behind the update of one version: nobody needs for it what another one does later, or a batch not yet read."""
    for version, begun in enumerate(plan.batches_begun):
        before, until_next = [], list[Action]()
        for actions in plan.actions:
            ends = [0, *(at + 1 for at, one in enumerate(actions) if isinstance(one, Update)), len(actions)]
            before.append(actions[: ends[version]])
            until_next += actions[: ends[version + 1]]
        assert deadlocks(replace(plan, actions=tuple(before))) == []
        assert {plan.place_of(action)[0] for action in until_next} <= set(range(begun))


def _with(plan: Plan, stage: int, actions: tuple[Action, ...]) -> Plan:
    return replace(plan, actions=(*plan.actions[:stage], actions, *plan.actions[stage + 1 :]))


def _two_stages(name: str) -> tuple[Plan, list[Action], list[Action]]:
    plan = make_plan(schedule_named(name), 2, 2)
    return plan, list(plan.actions[0]), list(plan.actions[1])


def test_a_gradient_that_is_awaited_before_the_activations_were_sent_deadlocks() -> None:
    plan, first, _ = _two_stages("gpipe")
    awaited = next(action for action in first if isinstance(action, Receive))
    first.remove(awaited)
    found = faults(_with(plan, 0, (awaited, *first)))
    assert any("deadlock: stage 0 waits in Receive" in fault for fault in found)
    assert any("deadlock: stage 1 waits in Receive" in fault for fault in found)


def test_messages_that_overtake_each_other_are_found() -> None:
    plan, first, _ = _two_stages("gpipe")
    sent = [at for at, action in enumerate(first) if isinstance(action, Send)]
    # Both forwards first: then the sends may be exchanged, and only the receiver notices.
    first = [one for at, one in enumerate(first) if at not in sent]
    both = [action for action in plan.actions[0] if isinstance(action, Send)]
    assert faults(_with(plan, 0, (*first[:2], *both, *first[2:]))) == []
    assert faults(_with(plan, 0, (*first[:2], *reversed(both), *first[2:]))) == [
        "stage 0 sends stage 1 with tag 0 other messages than are received"
    ]


def test_an_update_waits_for_the_whole_backward() -> None:
    plan, first, _ = _two_stages("zb_h1")
    first[-1], first[-2] = first[-2], first[-1]
    assert [fault for fault in faults(_with(plan, 0, tuple(first))) if "adds to the gradients of batch 1" in fault]


def test_weights_gradients_wait_for_those_of_the_inputs() -> None:
    plan, first, _ = _two_stages("zb_h1")
    kinds = [action.operation.value if isinstance(action, Compute) else "" for action in first]
    inputs, weights = kinds.index("B"), kinds.index("W")
    first[inputs], first[weights] = first[weights], first[inputs]
    assert [fault for fault in faults(_with(plan, 0, tuple(first))) if "WEIGHTS" in fault and "comes before" in fault]


def test_a_message_to_the_wrong_stage_is_found() -> None:
    plan, first, _ = _two_stages("1f1b")
    first[1] = Send(Message(0, 1, 0, False), peer=0, tag=0)
    assert faults(_with(plan, 0, tuple(first)))


@pytest.mark.parametrize(
    ("name", "stages", "deadlocks_without_buffers"), [("gpipe", 4, False), ("1f1b", 2, True), ("zb_v", 3, True)]
)
def test_senders_that_wait_for_receivers(name: str, stages: int, deadlocks_without_buffers: bool) -> None:
    """In 1F1B neighbours send to each other at the same time. This is why sends in a plan do not wait."""
    plan = make_plan(schedule_named(name), stages, 4)
    assert bool(deadlocks(plan, is_rendezvous=True)) is deadlocks_without_buffers
    assert deadlocks(plan) == []
