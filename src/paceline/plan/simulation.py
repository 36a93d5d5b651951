"""How long a plan takes: every stage goes through its list, waits for messages, and computes as long as the costs say.

Sends overlap with computation and never make the sender wait. The messages from one stage to another share one link and
go over it one after the other. The same walk, with senders that do wait, tells whether a carrier without buffers could
deadlock.
"""

from collections import defaultdict, deque
from dataclasses import dataclass

from paceline.plan.actions import Action, Compute, Plan, Receive, Send, Update
from paceline.plan.costs import Costs, equal_costs

Span = tuple[Compute | Update, float, float]
"""What was done, with its begin and end in seconds."""


@dataclass(frozen=True)
class Timeline:
    """When every stage did what.

    Args:
        plan: What was done.
        spans: By stage.
    """

    plan: Plan
    spans: tuple[tuple[Span, ...], ...]

    @property
    def end_seconds(self) -> float:
        """When the last stage was done."""
        return max(spans[-1][2] for spans in self.spans)

    @property
    def busy_seconds(self) -> tuple[float, ...]:
        """How long each stage computed."""
        return tuple(sum(end - begin for _, begin, end in spans) for spans in self.spans)

    @property
    def step_seconds(self) -> float:
        """The time of a batch; while the pipeline is full, if the plan is long enough for that."""
        plan = self.plan
        draining = -(-plan.shape.num_stages // plan.micro_batches)  # the last batches: nothing follows them
        first, last = max(draining, plan.batches // 2), plan.batches - draining
        if last <= first:
            return self.end_seconds / plan.batches
        updates = [[end for done, _, end in spans if isinstance(done, Update)] for spans in self.spans]
        return max((ends[last - 1] - ends[first - 1]) / (last - first) for ends in updates)

    @property
    def bubble(self) -> float:
        """The share of a step that the stages do not compute, 0 to 1."""
        whole = self.step_seconds * self.plan.batches * len(self.spans)
        return 1 - sum(self.busy_seconds) / whole if whole else 0.0


def simulate(plan: Plan, costs: Costs) -> Timeline:
    """Runs a plan on paper.

    Raises:
        ValueError: the plan deadlocks.
    """
    walk = _Walk(plan, costs, is_rendezvous=False)
    if stuck := walk.run():
        raise ValueError(f"the plan deadlocks: {'; '.join(stuck)}. [argument]")
    return Timeline(plan, tuple(tuple(spans) for spans in walk.spans))


def deadlocks(plan: Plan, *, is_rendezvous: bool = False) -> list[str]:
    """Which stages wait for ever, and what for; empty: the plan runs to its end, whatever the costs.

    Args:
        plan: Any.
        is_rendezvous: Whether a sender waits until the receiver is at the message.
    """
    return _Walk(plan, equal_costs(plan.shape.num_chunks), is_rendezvous).run()


_Tagged = tuple[int, int, int]
"""Sender, receiver, tag."""


class _Walk:
    """Moves every stage as far as it gets, until none moves. When something arrives depends on the order of the lists
    only, so the order of the moves does not matter.
    """

    def __init__(self, plan: Plan, costs: Costs, is_rendezvous: bool) -> None:
        self._plan, self._costs, self._is_rendezvous = plan, costs, is_rendezvous
        stages = range(len(plan.actions))
        self._positions = [0 for _ in stages]
        self._clocks = [0.0 for _ in stages]
        self._links: dict[tuple[int, int], float] = {}
        self._arrivals: defaultdict[_Tagged, deque[float]] = defaultdict(deque)  # what has been sent and not received
        self._waits: list[_Tagged | None] = [None for _ in stages]
        self._to_move: deque[int] = deque()
        self.spans: list[list[Span]] = [[] for _ in stages]

    def run(self) -> list[str]:
        stages = range(len(self._plan.actions))
        # Only who may have got what it waits for is looked at again: looking at all takes a square of the stages.
        self._to_move = deque(stages)
        while self._to_move:
            self._advance(self._to_move.popleft())
        waiting = [(stage, self._next(stage)) for stage in stages]
        return [f"stage {stage} waits in {action}" for stage, action in waiting if action is not None]

    def _next(self, stage: int) -> Action | None:
        actions, position = self._plan.actions[stage], self._positions[stage]
        return actions[position] if position < len(actions) else None

    def _advance(self, stage: int) -> None:
        actions = self._plan.actions[stage]
        for position in range(self._positions[stage], len(actions)):
            self._positions[stage] = position
            if not self._do(stage, actions[position]):
                return
        self._positions[stage] = len(actions)

    def _do(self, stage: int, action: Action) -> bool:
        """Whether `action` could be done."""
        if isinstance(action, Compute):
            self._spend(stage, action, self._costs.chunks[action.chunk].seconds(action.operation))
        elif isinstance(action, Send):
            return self._send(stage, action)
        elif isinstance(action, Receive):
            return self._receive(stage, action)
        else:
            chunks = self._plan.shape.chunks_of(stage)
            self._spend(stage, action, sum(self._costs.chunks[chunk].update_seconds for chunk in chunks))
        return True

    def _send(self, stage: int, action: Send) -> bool:
        way = stage, action.peer, action.tag
        if self._is_rendezvous and not self._is_awaited(way):
            return False
        self._arrivals[way].append(self._arrival(stage, action))
        if 0 <= action.peer < len(self._waits) and self._waits[action.peer] == way:
            self._waits[action.peer] = None
            self._to_move.append(action.peer)
        return True

    def _receive(self, stage: int, action: Receive) -> bool:
        way = action.peer, stage, action.tag
        if arrivals := self._arrivals[way]:
            self._clocks[stage] = max(self._clocks[stage], arrivals.popleft())
            return True
        self._waits[stage] = way
        if self._is_rendezvous and 0 <= action.peer < len(self._waits):
            self._to_move.append(action.peer)  # it may wait until this stage is at the message
        return False

    def _is_awaited(self, way: _Tagged) -> bool:
        """Whether the receiver waits for the next message of this sender and tag."""
        sender, receiver, tag = way
        expected = self._next(receiver) if 0 <= receiver < len(self._positions) else None
        is_there = isinstance(expected, Receive) and (expected.peer, expected.tag) == (sender, tag)
        return is_there and not self._arrivals[way]

    def _spend(self, stage: int, action: Compute | Update, seconds: float) -> None:
        begin = self._clocks[stage]
        self._clocks[stage] = begin + seconds
        self.spans[stage].append((action, begin, begin + seconds))

    def _arrival(self, stage: int, action: Send) -> float:
        """When a message that `stage` sends now is there."""
        message, link = action.message, self._costs.link
        num_bytes = self._costs.edge_bytes.get((message.source, message.target), 0)
        begin = max(self._clocks[stage], self._links.get((stage, action.peer), 0.0))
        self._links[stage, action.peer] = begin + num_bytes / link.bytes_per_second
        return begin + link.seconds(num_bytes)
