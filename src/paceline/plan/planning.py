"""From a schedule's order of computations to a plan: messages, recomputation, versions of weights and updates."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from paceline.plan.actions import Action, Compute, Message, Operation, Plan, Receive, Send, Update
from paceline.plan.orders import Order, Turn, turns_of
from paceline.plan.schedules import Place, Schedule
from paceline.plan.shape import Shape, chain

Step = tuple[Turn | None, int]
"""What is computed for which micro-batch; None: the update with the gradients of which batch."""


@dataclass(frozen=True)
class Outline:
    """What every stage computes and updates, in order: a plan without its messages, which follow from it.

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

    schedule: Schedule
    stages: int
    micro_batches: int
    batches: int = 1
    edges: tuple[tuple[int, int], ...] | None = None
    recompute: bool = False

    def __post_init__(self) -> None:
        name, fewest = self.schedule.name, self.schedule.fewest_micro_batches(self.stages)
        if min(self.stages, self.batches) < 1 or self.micro_batches < fewest:
            raise ValueError(
                f"received {self.stages} stages, {self.micro_batches} micro-batches, {self.batches} batches; expected "
                f"at least 1 of each, and for {name} at least {fewest} micro-batches. [argument]"
            )
        if self.schedule.is_synchronous and self.batches != 1:
            raise ValueError(f"received {self.batches} batches; expected 1, as {name} is synchronous. [argument]")

    @cached_property
    def shape(self) -> Shape:
        """Which stage has which chunk, and which chunk reads from which."""
        places = self.schedule.places(self.stages)
        return Shape(places, chain(len(places)) if self.edges is None else self.edges)

    def delay(self, stage: int) -> int:
        """See `Schedule.delay`."""
        return self.schedule.delay(Place(stage, self.stages, self.micro_batches))

    def orders(self) -> list[Order]:
        """By stage, what it computes, without recomputation."""
        return self.schedule.order(self.stages, self.micro_batches * self.batches)

    def batches_of_runs(self) -> list[list[Order]]:
        """By stage, what it computes up to each of its updates."""
        orders = self.orders()
        if self.recompute:
            orders = list(map(_recomputing, orders))
        if self.batches == 1:  # the last gradient is the last that is computed
            return [[order] for order in orders]
        return [
            _until_updates(order, self.micro_batches * len(self.shape.chunks_of(stage)))
            for stage, order in enumerate(orders)
        ]

    def steps(self) -> list[Iterator[Step]]:
        """What each stage computes and updates, in order."""
        return list(map(_steps, self.batches_of_runs()))


def _recomputing(order: Order) -> Order:
    under_way = defaultdict[int, int](int)
    before: Turn | None = None

    def with_recomputation(turns: tuple[Turn, ...]) -> Iterator[Turn]:
        nonlocal before
        for turn in turns:
            operation, chunk = turn
            if operation is Operation.FORWARD:
                under_way[chunk] += 1
            elif operation.gives_input_gradients:
                if before != (Operation.FORWARD, chunk) or under_way[chunk] > 1:
                    yield Operation.RECOMPUTE, chunk
                under_way[chunk] -= 1
            yield turn
            before = turn

    every = (tuple(with_recomputation(turns)) for number, turns in order for _ in range(number))
    return [(sum(1 for _ in same), turns) for turns, same in itertools.groupby(every)]


def _until_updates(order: Order, whole_batch: int) -> list[Order]:
    """All gradients of a batch are added before those of the next one, so counting them is enough."""
    found, runs, missing = list[Order](), Order(), whole_batch
    rest = order[::-1]
    while rest:
        number, turns = rest.pop()
        ends = [at for at, (operation, _) in enumerate(turns, 1) if operation in _ADDING]
        if number * len(ends) < missing:
            runs.append((number, turns))
            missing -= number * len(ends)
        else:
            before, last = divmod(missing - 1, len(ends))
            found.append([*runs, (before, turns), (1, turns[: ends[last]])])
            runs, missing = [], whole_batch
            rest += [(number - before - 1, turns), (1, turns[ends[last] :])]
    return found


def _steps(batches: list[Order]) -> Iterator[Step]:
    done = defaultdict[Turn, int](int)
    for batch, order in enumerate(batches):
        for turn in turns_of(order):
            yield turn, done[turn]
            done[turn] += 1
        yield None, batch


_ADDING = frozenset(operation for operation in Operation if operation.gives_weight_gradients)


def make_plan(
    schedule: Schedule,
    stages: int,
    micro_batches: int,
    *,
    batches: int = 1,
    edges: tuple[tuple[int, int], ...] | None = None,
    recompute: bool = False,
) -> Plan:
    """What every stage does; for the arguments see `Outline`.

    A message is received immediately before the computation that needs it, and sent immediately after the one that made
    it. Recomputation begins before the wait for the gradients.
    """
    outline = Outline(schedule, stages, micro_batches, batches, edges, recompute)
    actions = tuple(tuple(_acting(outline, stage, steps)) for stage, steps in enumerate(outline.steps()))
    return Plan(schedule.name, outline.shape, micro_batches, batches, actions)


def _acting(outline: Outline, stage: int, steps: Iterator[Step]) -> Iterator[Action]:
    ways, delay = ways_of(outline.shape, stage), outline.delay(stage)
    for turn, number in steps:
        if turn is None:
            yield Update(number + 1)
            continue
        received, sent = ways.get(turn, ((), ()))
        for source, target, is_gradient, peer, tag in received:
            yield Receive(Message(source, target, number, is_gradient), peer, tag)
        yield Compute(*turn, number, max(0, number // outline.micro_batches - delay))
        for source, target, is_gradient, peer, tag in sent:
            yield Send(Message(source, target, number, is_gradient), peer, tag)


Way = tuple[int, int, bool, int, int]
"""Source, target, whether gradients go there, the stage at the other end, and the tag."""


def ways_of(shape: Shape, stage: int) -> dict[Turn, tuple[list[Way], list[Way]]]:
    """By turn of `stage`: over which ways other stages send what it reads, and get what it makes."""
    found = dict[Turn, tuple[list[Way], list[Way]]]()
    for chunk in shape.chunks_of(stage):
        found[Operation.FORWARD, chunk] = _ways(shape, chunk, is_gradient=False)
        gradients = _ways(shape, chunk, is_gradient=True)
        found[Operation.BACKWARD, chunk] = found[Operation.BACKWARD_INPUTS, chunk] = gradients
    return found


def _ways(shape: Shape, chunk: int, *, is_gradient: bool) -> tuple[list[Way], list[Way]]:
    def ways(edges: list[tuple[int, int]], others: list[int]) -> list[Way]:
        return [
            (*edge, is_gradient, shape.stage_of[other], shape.tag(*edge, is_gradient))
            for edge, other in zip(edges, others, strict=True)
            if shape.stage_of[other] != shape.stage_of[chunk]
        ]

    sources, targets = shape.sources_of(chunk), shape.targets_of(chunk)
    before = ways([(source, chunk) for source in sources], sources)
    after = ways([(chunk, target) for target in targets], targets)
    return (after, before) if is_gradient else (before, after)
