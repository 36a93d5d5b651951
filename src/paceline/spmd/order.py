"""In which order the operations of a program are built."""

import heapq

from paceline.spmd.programs import Program


class Order:
    """Which nodes of a program can be built: those before them are, and those that make their inputs.

    Of several, the first of the program: every rank builds messages in the same order.
    """

    def __init__(self, program: Program) -> None:
        self._nodes = program.nodes
        self._missing = [0] * len(program.nodes)
        self._followers: dict[int, list[int]] = {}
        makers = {ref: number for number, node in enumerate(program.nodes) for ref in node.outputs}
        for number, node in enumerate(program.nodes):
            before = {makers[ref] for ref in node.inputs if ref in makers} | node.before
            self._missing[number] = len(before)
            for other in before:
                self._followers.setdefault(other, []).append(number)
        self.ready = [number for number, count in enumerate(self._missing) if not count]

    def next(self) -> int:
        """Takes the first node that can be built."""
        return heapq.heappop(self.ready)

    def done(self, number: int) -> None:
        """Tells that a node is built."""
        for follower in self._followers.get(number, ()):
            self._missing[follower] -= 1
            if not self._missing[follower]:
                heapq.heappush(self.ready, follower)
