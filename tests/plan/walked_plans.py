"""Times and memory of a plan, the straightforward way: action by action, with all that is held in a dictionary."""

from collections import defaultdict, deque

from paceline.plan.actions import Action, Compute, Operation, Plan, Receive, Send, Update
from paceline.plan.costs import Costs, GradientSum

Span = tuple[Compute | Update, float, float]


def spans_of(plan: Plan, costs: Costs) -> list[list[Span]]:
    """By stage, what is done with its begin and end."""
    spans: list[list[Span]] = [[] for _ in plan.actions]
    rests = [deque(actions) for actions in plan.actions]
    clocks = [0.0 for _ in plan.actions]
    links: dict[tuple[int, int], float] = {}
    arrivals: dict[tuple[int, int, int], deque[float]] = defaultdict(deque)
    sums_to_come = [[one for one in costs.gradient_sums if stage in one.stages] for stage in range(len(rests))]
    moved = True
    while moved:
        moved = False
        for stage, rest in enumerate(rests):
            while rest:
                action = rest[0]
                if isinstance(action, Receive):
                    way = arrivals[action.peer, stage, action.tag]
                    if not way:
                        break
                    clocks[stage] = max(clocks[stage], way.popleft())
                elif isinstance(action, Send):
                    num_bytes = costs.edge_bytes[action.message.source, action.message.target]
                    begin = max(clocks[stage], links.get((stage, action.peer), 0.0))
                    links[stage, action.peer] = begin + num_bytes / costs.link.bytes_per_second
                    arrivals[stage, action.peer, action.tag].append(begin + costs.link.seconds(num_bytes))
                elif isinstance(action, Update) and sums_to_come[stage]:
                    one = sums_to_come[stage][0]
                    if not all(_is_at(one, rests[other], sums_to_come[other]) for other in one.stages):
                        break
                    end = max(clocks[other] for other in one.stages) + one.seconds
                    for other in one.stages:
                        clocks[other] = end
                        sums_to_come[other].pop(0)
                    moved = True
                    continue
                else:
                    begin = clocks[stage]
                    clocks[stage] = begin + _seconds(plan, costs, stage, action)
                    spans[stage].append((action, begin, clocks[stage]))
                rest.popleft()
                moved = True
    assert not any(rests), "a deadlock"
    return spans


def _is_at(one: GradientSum, rest: deque[Action], to_come: list[GradientSum]) -> bool:
    return isinstance(rest[0], Update) and to_come[0] is one


def _seconds(plan: Plan, costs: Costs, stage: int, action: Compute | Update) -> float:
    if isinstance(action, Compute):
        return costs.chunks[action.chunk].seconds(action.operation)
    return sum(costs.chunks[chunk].update_seconds for chunk in plan.shape.chunks_of(stage))


def stash_of(plan: Plan, costs: Costs, stage: int) -> tuple[int, int]:
    """The most micro-batches, and the most bytes, that are stashed at one time."""
    recomputed = {(one.chunk, one.micro_batch) for one in plan.computations(stage) if one.operation.value == "R"}
    held: dict[tuple[int, int], int] = {}
    most, most_bytes = 0, 0
    for one in plan.computations(stage):
        key, cost = (one.chunk, one.micro_batch), costs.chunks[one.chunk]
        if one.operation.gives_input_gradients:
            most_bytes = max(most_bytes, sum(held.values()) + cost.weights_stash_bytes)
        if one.operation.gives_weight_gradients:
            del held[key]
        elif one.operation is Operation.BACKWARD_INPUTS:
            held[key] = cost.weights_stash_bytes
        else:
            is_kept = one.operation is Operation.RECOMPUTE or key not in recomputed
            held[key] = cost.stash_bytes if is_kept else cost.input_bytes
        most, most_bytes = max(most, len(held)), max(most_bytes, sum(held.values()))
    return most, most_bytes


def versions_of(plan: Plan, stage: int) -> int:
    """The most versions of the weights at one time: one lives until the update that starts from it, or its last use."""
    last_uses, newest, older, most = plan.last_uses(stage), 0, set[int](), 1
    for index, action in enumerate(plan.actions[stage]):
        if isinstance(action, Update):
            older = {version for version in older | {newest} if last_uses.get(version, -1) > index}
            newest = action.version
            most = max(most, 1 + len(older))
    return most
