"""How long a plan takes: every stage goes through its steps, waits for messages, and computes as long as the costs say.

Sends overlap with computation and never make the sender wait. The messages from one stage to another share one link and
go over it one after the other. A plan has up to millions of steps: none of them becomes an object here. Stages mostly
wait after one or two, and what a stage touches then has to come back into the processor's cache: that is kept small.
"""

import contextlib
import math
from array import array
from collections import defaultdict, deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import chain, repeat

from paceline.plan.actions import Operation
from paceline.plan.costs import Costs, GradientSum
from paceline.plan.orders import Order, Run, Turn
from paceline.plan.planning import Outline, Step, ways_of


@dataclass(frozen=True)
class Timeline:
    """When every stage did what.

    Args:
        outline: What was done.
        costs: What it took.
        begins: By stage, the second at which each of its steps began.
        update_ends: By stage, the second at which each of its updates was done.
        busy_seconds: How long each stage computed.
    """

    outline: Outline
    costs: Costs
    begins: tuple["array[float]", ...]
    update_ends: tuple[tuple[float, ...], ...]
    busy_seconds: tuple[float, ...]

    def spans(self) -> list[Iterator[tuple[Step, float, float]]]:
        """By stage, what was done, with its begin and end in seconds."""

        def of_stage(stage: int, steps: Iterator[Step]) -> Iterator[tuple[Step, float, float]]:
            seconds = seconds_of(self.outline, self.costs, stage)
            for step, begin in zip(steps, self.begins[stage], strict=True):
                yield step, begin, begin + seconds[step[0]]

        return [of_stage(stage, steps) for stage, steps in enumerate(self.outline.steps())]

    @property
    def end_seconds(self) -> float:
        """When the last stage was done."""
        return max(ends[-1] for ends in self.update_ends)

    @property
    def step_seconds(self) -> float:
        """The time of a batch; while the pipeline is full, if the plan is long enough for that."""
        outline = self.outline
        draining = -(-outline.stages // outline.micro_batches)  # the last batches: nothing follows them
        first, last = max(draining, outline.batches // 2), outline.batches - draining
        if last <= first:
            return self.end_seconds / outline.batches
        return max((ends[last - 1] - ends[first - 1]) / (last - first) for ends in self.update_ends)

    @property
    def waits(self) -> list[float]:
        """By stage, the share of a step that it does not compute, 0 to 1."""
        whole = self.step_seconds * self.outline.batches
        return [1 - busy / whole if whole else 0.0 for busy in self.busy_seconds]

    @property
    def bubble(self) -> float:
        """The same of all stages."""
        return sum(self.waits) / self.outline.stages


def seconds_of(outline: Outline, costs: Costs, stage: int) -> dict[Turn | None, float]:
    """How long each turn of `stage` takes; None: an update."""
    chunks = outline.shape.chunks_of(stage)
    seconds: dict[Turn | None, float] = {
        (operation, chunk): costs.chunks[chunk].seconds(operation) for chunk in chunks for operation in Operation
    }
    return {**seconds, None: sum(costs.chunks[chunk].update_seconds for chunk in chunks)}


def simulate(outline: Outline, costs: Costs) -> Timeline:
    """Runs a plan on paper.

    Raises:
        ValueError: the schedule's order deadlocks.
    """
    ways = _Ways(outline, costs)
    meetings = [_Meeting(one) for one in costs.gradient_sums]
    to_move = list(reversed(range(outline.stages)))
    stages = [
        _Stage(outline, costs, stage, ways, [one for one in meetings if stage in one.stages])
        for stage in range(outline.stages)
    ]
    batches = outline.batches_of_runs()
    walks = [stage.walk(own, to_move).__next__ for stage, own in zip(stages, batches, strict=True)]
    # Only who may have got what it waits for is looked at again: looking at all takes a square of the stages. When
    # something arrives depends on the order of the steps only, so the order of the moves does not matter; who was woken
    # last has its messages in the processor's cache.
    while to_move:
        with contextlib.suppress(StopIteration):  # a stage is done
            while to_move:
                walks[to_move.pop()]()
    if stuck := [number for number, stage in enumerate(stages) if not stage.is_done]:
        raise ValueError(f"{outline.schedule.name} deadlocks: the stages {stuck} wait for ever. [argument]")
    return Timeline(
        outline,
        costs,
        tuple(stage.begins for stage in stages),
        tuple(tuple(stage.update_ends) for stage in stages),
        tuple(stage.busy_seconds for stage in stages),
    )


class _Link:
    """From one stage to another; `free_seconds`: from when on it carries nothing."""

    __slots__ = ("free_seconds",)

    def __init__(self) -> None:
        self.free_seconds = 0.0


class _Way(deque[float]):
    """What goes from one chunk to another one on another stage: the arrivals of what has been sent and not received.

    A message takes the link for `sending_seconds`; None for the link: they take it no time, so it is always free.
    """

    __slots__ = ("is_awaited", "link", "reader", "sending_seconds", "whole_seconds")

    def __init__(self, reader: int, link: _Link | None, sending_seconds: float, whole_seconds: float) -> None:
        super().__init__()
        self.reader, self.link, self.is_awaited = reader, link, False
        self.sending_seconds, self.whole_seconds = sending_seconds, whole_seconds


_Leg = tuple[_Way | None, float | None, _Way | None]
"""A part of a turn: over which way it receives something, how long it computes, over which way it sends something."""


class _Ways:
    """Each way once, for the stages at both of its ends."""

    def __init__(self, outline: Outline, costs: Costs) -> None:
        self._shape, self._costs = outline.shape, costs
        self._links: defaultdict[tuple[int, int], _Link] = defaultdict(_Link)
        self._ways: dict[tuple[int, int, bool], _Way] = {}

    def between(self, source: int, target: int, is_gradient: bool) -> _Way:
        key = source, target, is_gradient
        if key not in self._ways:
            sender, reader = self._shape.stage_of[source], self._shape.stage_of[target]
            if is_gradient:
                sender, reader = reader, sender
            num_bytes, link = self._costs.edge_bytes.get((source, target), 0), self._costs.link
            sending, whole = num_bytes / link.bytes_per_second, link.seconds(num_bytes)
            shared = self._links[sender, reader] if link.bytes_per_second < math.inf else None
            self._ways[key] = _Way(reader, shared, sending, whole)
        return self._ways[key]


class _Meeting:
    """A sum of gradients, which begins when the last of its `stages` is there: none is `missing`."""

    def __init__(self, gradient_sum: GradientSum) -> None:
        self.stages, self.seconds = gradient_sum.stages, gradient_sum.seconds
        self.missing, self.begin = len(self.stages), 0.0


class _Stage:
    """One stage on its way through its steps."""

    def __init__(self, outline: Outline, costs: Costs, stage: int, ways: _Ways, meetings: list[_Meeting]) -> None:
        self._meetings = meetings
        self.begins, self.update_ends = array("d"), list[float]()
        self.busy_seconds, self.is_done = 0.0, False
        found, seconds = ways_of(outline.shape, stage), seconds_of(outline, costs, stage)
        self._legs: dict[Turn, list[_Leg]] = {}
        for turn, turn_seconds in seconds.items():
            if turn is None:
                self._update_seconds = turn_seconds
                continue
            received, sent = ([ways.between(*one[:3]) for one in some] for some in found.get(turn, ([], [])))
            first, *further = sent or (None,)
            self._legs[turn] = [
                *((way, None, None) for way in received[:-1]),
                (received[-1] if received else None, turn_seconds, first),
                *((None, None, way) for way in further),
            ]

    def _repeated(self, run: Run) -> Iterator[_Leg]:
        number, turns = run
        return chain.from_iterable(repeat([leg for turn in turns for leg in self._legs[turn]], number))

    def walk(self, batches: list[Order], to_move: list[int]) -> Iterator[None]:
        """Yields where it waits. Puts who waits for what it sends into `to_move`."""
        clock, busy = 0.0, 0.0
        begin_at, wake = self.begins.append, to_move.append
        for order in batches:
            for received, seconds, sent in chain.from_iterable(map(self._repeated, order)):
                if received is not None:
                    while not received:
                        received.is_awaited = True
                        yield
                    if (arrival := received.popleft()) > clock:
                        clock = arrival
                if seconds is not None:
                    begin_at(clock)
                    clock += seconds
                    busy += seconds
                if sent is not None:
                    if (link := sent.link) is None:
                        sent.append(clock + sent.whole_seconds)
                    else:
                        begin = link.free_seconds
                        if clock > begin:
                            begin = clock
                        link.free_seconds = begin + sent.sending_seconds
                        sent.append(begin + sent.whole_seconds)
                    if sent.is_awaited:
                        sent.is_awaited = False
                        wake(sent.reader)
            clock = yield from self._met(clock, to_move)
            begin_at(clock)
            clock += self._update_seconds
            busy += self._update_seconds
            self.update_ends.append(clock)
        self.busy_seconds, self.is_done = busy, True

    def _met(self, clock: float, to_move: list[int]) -> Generator[None, None, float]:
        """When all sums of gradients are done; yields until the others are there."""
        for meeting in self._meetings:
            meeting.missing -= 1
            meeting.begin = max(meeting.begin, clock)
            to_move.extend(() if meeting.missing else meeting.stages)
            while meeting.missing:
                yield
            clock = meeting.begin + meeting.seconds
        return clock
