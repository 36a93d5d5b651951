"""From a schedule's order of computations to a plan: messages, recomputation, versions of weights and updates."""

from collections import Counter
from collections.abc import Iterator

from paceline.plan.actions import Action, Compute, Message, Operation, Plan, Receive, Send, Update
from paceline.plan.orders import Order
from paceline.plan.schedules import Place, Schedule
from paceline.plan.shape import Shape, chain


def make_plan(
    schedule: Schedule,
    stages: int,
    micro_batches: int,
    *,
    batches: int = 1,
    edges: tuple[tuple[int, int], ...] | None = None,
    recompute: bool = False,
) -> Plan:
    """What every stage does.

    A message is received immediately before the computation that needs it, and sent immediately after the one that made
    it. Recomputation begins before the wait for the gradients.

    Args:
        schedule: Which one.
        stages: Places in the pipeline.
        micro_batches: Of one batch.
        batches: 1 if the schedule is synchronous: one plan for each step. Else as many as are trained without a pause.
        edges: Which chunk reads from which; None: each from the one before.
        recompute: Whether a chunk keeps only its inputs until its backward. What has just been computed is not
            computed again.

    Raises:
        ValueError: numbers that the schedule does not allow.
    """
    if min(stages, batches) < 1 or micro_batches < schedule.fewest_micro_batches(stages):
        raise ValueError(
            f"received {stages} stages, {micro_batches} micro-batches, {batches} batches; expected at least 1 of each, "
            f"and for {schedule.name} at least {schedule.fewest_micro_batches(stages)} micro-batches. [argument]"
        )
    if schedule.is_synchronous and batches != 1:
        raise ValueError(f"received {batches} batches; expected 1, as {schedule.name} is synchronous. [argument]")
    places = schedule.places(stages)
    shape = Shape(places, chain(len(places)) if edges is None else edges)
    actions = []
    for stage, order in enumerate(schedule.order(stages, micro_batches * batches)):
        delay = schedule.delay(Place(stage, stages, micro_batches))
        computations = _versioned(order, micro_batches, delay)
        if recompute:
            computations = _recomputing(computations)
        actions.append(tuple(_acting(computations, shape, stage, micro_batches)))
    return Plan(schedule.name, shape, micro_batches, batches, tuple(actions))


def _versioned(order: Order, micro_batches: int, delay: int) -> Iterator[Compute]:
    for operation, chunk, number in order:
        yield Compute(operation, chunk, number, max(0, number // micro_batches - delay))


def _recomputing(computations: Iterator[Compute]) -> Iterator[Compute]:
    before: Compute | None = None
    for one in computations:
        forward = Compute(Operation.FORWARD, one.chunk, one.micro_batch, one.version)
        if one.operation.gives_input_gradients and before != forward:
            yield Compute(Operation.RECOMPUTE, one.chunk, one.micro_batch, one.version)
        yield one
        before = one


def _acting(computations: Iterator[Compute], shape: Shape, stage: int, micro_batches: int) -> Iterator[Action]:
    to_come = Counter[int]()
    own = shape.chunks_of(stage)
    whole_batch = micro_batches * len(own)
    forward_ways = {chunk: _ways(shape, chunk, is_gradient=False) for chunk in own}
    gradient_ways = {chunk: _ways(shape, chunk, is_gradient=True) for chunk in own}
    for one in computations:
        operation, number = one.operation, one.micro_batch
        received: list[_Way] = []
        sent: list[_Way] = []
        if operation is Operation.FORWARD:
            received, sent = forward_ways[one.chunk]
        elif operation.gives_input_gradients:
            received, sent = gradient_ways[one.chunk]
        for source, target, is_gradient, peer, tag in received:
            yield Receive(Message(source, target, number, is_gradient), peer, tag)
        yield one
        for source, target, is_gradient, peer, tag in sent:
            yield Send(Message(source, target, number, is_gradient), peer, tag)
        if operation.gives_weight_gradients:
            batch = number // micro_batches
            to_come[batch] += 1
            if to_come[batch] == whole_batch:
                yield Update(batch + 1)


_Way = tuple[int, int, bool, int, int]
"""Source, target, whether gradients go there, the stage at the other end, and the tag."""


def _ways(shape: Shape, chunk: int, *, is_gradient: bool) -> tuple[list[_Way], list[_Way]]:
    """The ways over which other stages send what a computation of `chunk` reads, and get what it makes."""

    def ways(edges: list[tuple[int, int]], others: list[int]) -> list[_Way]:
        return [
            (*edge, is_gradient, shape.stage_of[other], shape.tag(*edge, is_gradient))
            for edge, other in zip(edges, others, strict=True)
            if shape.stage_of[other] != shape.stage_of[chunk]
        ]

    sources, targets = shape.sources_of(chunk), shape.targets_of(chunk)
    before = ways([(source, chunk) for source in sources], sources)
    after = ways([(chunk, target) for target in targets], targets)
    return (after, before) if is_gradient else (before, after)
