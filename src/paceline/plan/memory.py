"""What each stage of a plan holds at most; it follows from the order of the stage's actions, without a clock."""

from dataclasses import dataclass

from paceline.plan.actions import Operation
from paceline.plan.costs import ChunkCost, Costs
from paceline.plan.orders import Order
from paceline.plan.planning import Outline


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


def peaks_of(outline: Outline, costs: Costs) -> tuple[Peak, ...]:
    """What each stage holds at most."""
    return tuple(_peak(outline, costs, stage, order) for stage, order in enumerate(outline.orders()))


def _peak(outline: Outline, costs: Costs, stage: int, order: Order) -> Peak:
    chunks = {chunk: costs.chunks[chunk] for chunk in outline.shape.chunks_of(stage)}
    num_stashed, stash_bytes = _peak_stash(order, chunks, outline.recompute)
    num_versions = 1 + _most_older_versions(outline.delay(stage), outline.batches)
    fixed = sum((num_versions + 1) * chunk.parameter_bytes + chunk.slot_bytes for chunk in chunks.values())
    return Peak(num_stashed, stash_bytes, num_versions, stash_bytes + fixed)


def _most_older_versions(delay: int, batches: int) -> int:
    """The most versions of the weights besides the newest that batches still use.

    Batch b uses version max(0, b - delay): the first ones share version 0, so short runs have fewer than `delay`.
    """
    if delay == 0 or batches == 1:
        return 0
    return min(delay, 1 + max(0, batches - 1 - delay))


def _peak_stash(order: Order, chunks: dict[int, ChunkCost], recompute: bool) -> tuple[int, int]:
    """The most micro-batches and bytes. A backward begins with the whole stash, recomputed or not."""
    kept = {chunk: cost.input_bytes if recompute else cost.stash_bytes for chunk, cost in chunks.items()}
    waiting = {chunk: cost.weights_stash_bytes for chunk, cost in chunks.items()}
    used = {chunk: cost.stash_bytes + waiting[chunk] - kept[chunk] for chunk, cost in chunks.items()}
    stashed, held, most_stashed, most = 0, 0, 0, 0
    for number, turns in order:
        for _ in range(number):
            before = stashed, held
            for operation, chunk in turns:
                if operation is Operation.FORWARD:
                    stashed += 1
                    held += kept[chunk]
                    if stashed > most_stashed:
                        most_stashed = stashed
                    if held > most:
                        most = held
                elif operation is Operation.BACKWARD_WEIGHTS:
                    stashed -= 1
                    held -= waiting[chunk]
                else:  # the caller holds the stash until the gradients are there
                    if held + used[chunk] > most:
                        most = held + used[chunk]
                    held -= kept[chunk]
                    if operation is Operation.BACKWARD:
                        stashed -= 1
                    else:
                        held += waiting[chunk]
            if (stashed, held) == before:
                break  # so it is each time
    return most_stashed, most
