"""How long a plan takes: every stage goes through its steps, waits for messages, and computes as long as the costs say.

Sends overlap with computation and never make the sender wait. The messages from one stage to another share one link and
go over it one after the other. A plan has up to millions of steps: none of them becomes an object here.
"""

from array import array
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.plan.actions import Operation
from paceline.plan.costs import Costs, GradientSum
from paceline.plan.orders import Turn
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
    def bubble(self) -> float:
        """The share of a step that the stages do not compute, 0 to 1."""
        whole = self.step_seconds * self.outline.batches * self.outline.stages
        return 1 - sum(self.busy_seconds) / whole if whole else 0.0


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
    walks = [stage.walk(steps, to_move) for stage, steps in zip(stages, outline.steps(), strict=True)]
    # Only who may have got what it waits for is looked at again: looking at all takes a square of the stages. When
    # something arrives depends on the order of the steps only, so the order of the moves does not matter; who was woken
    # last has its messages in the processor's cache.
    while to_move:
        next(walks[to_move.pop()], None)
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


class _Way:
    """What goes from one chunk to another one on another stage, over a link that a message takes for `sending_seconds`.

    `arrivals` are those of what has been sent and not received.
    """

    __slots__ = ("arrivals", "is_awaited", "link", "reader", "sending_seconds", "whole_seconds")

    def __init__(self, reader: int, link: _Link, sending_seconds: float, whole_seconds: float) -> None:
        self.reader, self.link = reader, link
        self.sending_seconds, self.whole_seconds = sending_seconds, whole_seconds
        self.arrivals, self.is_awaited = deque[float](), False


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
            self._ways[key] = _Way(reader, self._links[sender, reader], sending, whole)
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
        found = ways_of(outline.shape, stage)
        self._turns: dict[Turn | None, tuple[float, list[tuple[_Way, deque[float]]], list[_Way]]] = {}
        for turn, seconds in seconds_of(outline, costs, stage).items():
            received, sent = found.get(turn, ([], [])) if turn else ([], [])
            before = [(way, way.arrivals) for way in (ways.between(*one[:3]) for one in received)]
            self._turns[turn] = seconds, before, [ways.between(*one[:3]) for one in sent]

    def walk(self, steps: Iterator[Step], to_move: list[int]) -> Iterator[None]:
        """Yields where it waits. Puts who waits for what it sends into `to_move`."""
        clock, busy = 0.0, 0.0
        begins, turns = self.begins, self._turns
        for turn, _ in steps:
            seconds, received, sent = turns[turn]
            for way, arrivals in received:
                while not arrivals:
                    way.is_awaited = True
                    yield
                if (arrival := arrivals.popleft()) > clock:
                    clock = arrival
            if turn is None:
                for meeting in self._meetings:
                    meeting.missing -= 1
                    meeting.begin = max(meeting.begin, clock)
                    to_move.extend(() if meeting.missing else meeting.stages)
                    while meeting.missing:
                        yield
                    clock = meeting.begin + meeting.seconds
            begins.append(clock)
            clock += seconds
            busy += seconds
            for way in sent:
                link = way.link
                begin = link.free_seconds
                if clock > begin:
                    begin = clock
                link.free_seconds = begin + way.sending_seconds
                way.arrivals.append(begin + way.whole_seconds)
                if way.is_awaited:
                    way.is_awaited = False
                    to_move.append(way.reader)
            if turn is None:
                self.update_ends.append(clock)
        self.busy_seconds, self.is_done = busy, True
