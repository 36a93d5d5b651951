"""What each stage of a plan holds at most; it follows from the order of the stage's actions, without a clock."""

from dataclasses import dataclass
from heapq import heappop, heappush

from paceline.plan.actions import Compute, Operation, Plan, Update
from paceline.plan.costs import Costs


@dataclass(frozen=True)
class Peak:
    """The most that a stage holds at one time.

    Args:
        num_stashed: Micro-batches between their F and the end of their backward, counted for each chunk.
        stash_bytes: Theirs, and the gradients that a backward makes: about what would be held from its B to its W.
        num_versions: Of the weights.
        total_bytes: The stash, all versions of the weights, one set of gradients, and the optimizer's slots.
    """

    num_stashed: int
    stash_bytes: int
    num_versions: int
    total_bytes: int


def peak_of(plan: Plan, costs: Costs, stage: int) -> Peak:
    """What `stage` holds at most."""
    num_stashed, stash_bytes = _peak_stash(plan.computations(stage), costs)
    num_versions = _most_versions(plan, stage)
    chunks = [costs.chunks[chunk] for chunk in plan.shape.chunks_of(stage)]
    fixed = sum((num_versions + 1) * chunk.parameter_bytes + chunk.slot_bytes for chunk in chunks)
    return Peak(num_stashed, stash_bytes, num_versions, stash_bytes + fixed)


def _peak_stash(computations: list[Compute], costs: Costs) -> tuple[int, int]:
    recomputed = {(one.chunk, one.micro_batch) for one in computations if one.operation is Operation.RECOMPUTE}
    held: dict[tuple[int, int], int] = {}
    most, most_bytes, held_bytes = 0, 0, 0
    for one in computations:
        key, cost = (one.chunk, one.micro_batch), costs.chunks[one.chunk]
        if one.operation.gives_input_gradients:  # the caller holds the stash until the gradients are there
            most_bytes = max(most_bytes, held_bytes + cost.weights_stash_bytes)
        held_bytes -= held.get(key, 0)
        match one.operation:
            case Operation.FORWARD:
                held[key] = cost.input_bytes if key in recomputed else cost.stash_bytes
            case Operation.RECOMPUTE:
                held[key] = cost.stash_bytes
            case Operation.BACKWARD_INPUTS:
                held[key] = cost.weights_stash_bytes
            case Operation.BACKWARD | Operation.BACKWARD_WEIGHTS:
                held.pop(key, None)
        held_bytes += held.get(key, 0)
        most, most_bytes = max(most, len(held)), max(most_bytes, held_bytes)
    return most, most_bytes


def _most_versions(plan: Plan, stage: int) -> int:
    """A version lives from the update that makes it to the next update, which starts from it, or to its last use."""
    last_uses, most = plan.last_uses(stage), 1
    older = sorted(last_uses.items(), reverse=True)
    lasts: list[int] = []  # of the versions that are older than the newest one and still used, the soonest first
    for index, action in enumerate(plan.actions[stage]):
        if isinstance(action, Update):
            while older and older[-1][0] < action.version:
                heappush(lasts, older.pop()[1])
            while lasts and lasts[0] <= index:
                heappop(lasts)
            most = max(most, 1 + len(lasts))
    return most
