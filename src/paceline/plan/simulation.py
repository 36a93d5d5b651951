"""How long a plan takes: every stage goes through its list, waits for messages, and computes as long as the costs say.

Sends overlap with computation and never make the sender wait. The messages from one stage to another share one link and
go over it one after the other. The same walk, with senders that do wait, tells whether a carrier without buffers could
deadlock.
"""

from collections import deque
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
        self._arrivals: dict[tuple[int, int, int], list[float]] = {}  # by sender, receiver, tag
        self._received: dict[tuple[int, int, int], int] = {}
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
        while (action := self._next(stage)) is not None and self._do(stage, action):
            self._positions[stage] += 1
        if self._is_rendezvous and isinstance(action, Receive):
            self._wake(action.peer)  # it may wait until this stage is at the message

    def _wake(self, stage: int) -> None:
        if 0 <= stage < len(self._positions):
            self._to_move.append(stage)

    def _do(self, stage: int, action: Action) -> bool:
        """Whether `action` could be done."""
        match action:
            case Compute():
                self._spend(stage, action, self._costs.chunks[action.chunk].seconds(action.operation))
            case Update():
                chunks = self._plan.shape.chunks_of(stage)
                self._spend(stage, action, sum(self._costs.chunks[chunk].update_seconds for chunk in chunks))
            case Send(_, peer, tag):
                if self._is_rendezvous and not self._is_awaited((stage, peer, tag)):
                    return False
                self._post(stage, action)
                self._wake(peer)
            case Receive(_, peer, tag):
                way = peer, stage, tag
                arrivals, index = self._arrivals.get(way, []), self._received.get(way, 0)
                if index == len(arrivals):
                    return False
                self._received[way] = index + 1
                self._clocks[stage] = max(self._clocks[stage], arrivals[index])
        return True

    def _is_awaited(self, way: tuple[int, int, int]) -> bool:
        """Whether the receiver waits for the next message of this sender and tag."""
        sender, receiver, tag = way
        expected = self._next(receiver) if 0 <= receiver < len(self._positions) else None
        is_there = isinstance(expected, Receive) and (expected.peer, expected.tag) == (sender, tag)
        return is_there and self._received.get(way, 0) == len(self._arrivals.get(way, []))

    def _spend(self, stage: int, action: Compute | Update, seconds: float) -> None:
        begin = self._clocks[stage]
        self._clocks[stage] = begin + seconds
        self.spans[stage].append((action, begin, begin + seconds))

    def _post(self, stage: int, action: Send) -> None:
        message, link = action.message, self._costs.link
        num_bytes = self._costs.edge_bytes.get((message.source, message.target), 0)
        begin = max(self._clocks[stage], self._links.get((stage, action.peer), 0.0))
        self._links[stage, action.peer] = begin + num_bytes / link.bytes_per_second
        self._arrivals.setdefault((stage, action.peer, action.tag), []).append(begin + link.seconds(num_bytes))
