"""Whether a plan, whoever made it, runs to its end: every stage goes through its list and waits, without a clock."""

from collections import Counter, deque

from paceline.plan.actions import Action, Plan, Receive, Send


def deadlocks(plan: Plan, *, is_rendezvous: bool = False) -> list[str]:
    """Which stages wait for ever, and what for; empty: the plan runs to its end, whatever the costs.

    Args:
        plan: Any.
        is_rendezvous: Whether a sender waits until the receiver is at the message, as with a carrier without buffers.
    """
    return _Walk(plan, is_rendezvous).run()


_Tagged = tuple[int, int, int]
"""Sender, receiver, tag."""


class _Walk:
    """Moves every stage as far as it gets, until none moves; the order of the moves does not matter."""

    def __init__(self, plan: Plan, is_rendezvous: bool) -> None:
        self._plan, self._is_rendezvous = plan, is_rendezvous
        stages = range(len(plan.actions))
        self._positions = [0 for _ in stages]
        self._under_way = Counter[_Tagged]()  # what has been sent and not received
        self._waits: list[_Tagged | None] = [None for _ in stages]
        self._to_move: deque[int] = deque()

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
            if not self._can_do(stage, actions[position]):
                return
        self._positions[stage] = len(actions)

    def _can_do(self, stage: int, action: Action) -> bool:
        if isinstance(action, Send):
            return self._send((stage, action.peer, action.tag))
        return not isinstance(action, Receive) or self._receive((action.peer, stage, action.tag))

    def _send(self, way: _Tagged) -> bool:
        peer = way[1]
        if self._is_rendezvous and not self._is_awaited(way):
            return False
        self._under_way[way] += 1
        if 0 <= peer < len(self._waits) and self._waits[peer] == way:
            self._waits[peer] = None
            self._to_move.append(peer)
        return True

    def _receive(self, way: _Tagged) -> bool:
        peer, stage, _ = way
        if self._under_way[way]:
            self._under_way[way] -= 1
            return True
        self._waits[stage] = way
        if self._is_rendezvous and 0 <= peer < len(self._waits):
            self._to_move.append(peer)  # it may wait until this stage is at the message
        return False

    def _is_awaited(self, way: _Tagged) -> bool:
        """Whether the receiver waits for the next message of this sender and tag."""
        sender, receiver, tag = way
        expected = self._next(receiver) if 0 <= receiver < len(self._positions) else None
        is_there = isinstance(expected, Receive) and (expected.peer, expected.tag) == (sender, tag)
        return is_there and not self._under_way[way]
