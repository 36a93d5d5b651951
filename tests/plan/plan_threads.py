"""An executor of plans on threads, with integers modulo a prime for tensors: exact, in any order of additions.

A chunk with the weight w makes y = w x + x² of x, the sum of what it reads; chunks that nobody reads are the loss.
"""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from paceline.comm.group import Group
from paceline.plan.actions import Compute, Message, Operation, Plan, Receive, Send, Update
from thread_groups import thread_groups

PRIME = 10_007

Weights = dict[int, int]
"""By chunk."""


class StageThread:
    """One stage: executes its list over a group whose ranks are the stages."""

    def __init__(self, plan: Plan, group: Group, weights: Weights) -> None:
        self._plan, self._group = plan, group
        mine = plan.shape.chunks_of(group.rank)
        self._versions = {0: {chunk: weights[chunk] for chunk in mine}}
        self._made: dict[Message, int] = {}
        self._inputs: dict[tuple[int, int], int] = {}
        self._stash: dict[tuple[int, int], tuple[int, int]] = {}
        self._for_weights: dict[tuple[int, int], int] = {}
        self._sums: dict[int, int] = defaultdict(int)
        self._recomputed = {
            (one.chunk, one.micro_batch)
            for one in plan.computations(group.rank)
            if one.operation is Operation.RECOMPUTE
        }

    def run(self) -> Weights:
        """The weights after the last update."""
        sent = []
        for action in self._plan.actions[self._group.rank]:
            match action:
                case Receive(message, peer, tag):
                    self._made[message] = int(self._group.recv((1,), "int64", peer, tag).wait()[0])
                case Send(message, peer, tag):
                    sent.append(self._group.send(np.array([self._made.pop(message)]), peer, tag))
                case Update(version):
                    before = self._versions[version - 1]
                    self._versions[version] = {
                        chunk: (weight - self._sums[chunk]) % PRIME for chunk, weight in before.items()
                    }
                    self._sums.clear()
                case Compute():
                    self._compute(action)
        for request in sent:
            request.wait()
        kept = (self._made, self._stash, self._inputs, self._for_weights)
        assert not any(kept), "something is kept for nobody"
        return self._versions[self._plan.batches]

    def _compute(self, one: Compute) -> None:
        key = one.chunk, one.micro_batch
        weight = self._versions[one.version][one.chunk]
        sources, targets = self._plan.shape.sources_of(one.chunk), self._plan.shape.targets_of(one.chunk)
        if one.operation is Operation.FORWARD:
            read = [self._made.pop(Message(source, one.chunk, one.micro_batch, False)) for source in sources]
            x = (sum(read) + (0 if sources else one.micro_batch + 1)) % PRIME
            self._inputs[key] = x
            for target in targets:
                self._made[Message(one.chunk, target, one.micro_batch, False)] = x * (weight + x) % PRIME
        if one.operation is Operation.RECOMPUTE or (one.operation is Operation.FORWARD and key not in self._recomputed):
            x = self._inputs.pop(key)
            self._stash[key] = x, weight + 2 * x
        if one.operation.gives_input_gradients:
            read = [self._made.pop(Message(one.chunk, target, one.micro_batch, True)) for target in targets]
            gradient = sum(read) if targets else 1
            x, slope = self._stash.pop(key)
            for source in sources:
                self._made[Message(source, one.chunk, one.micro_batch, True)] = gradient * slope % PRIME
            self._for_weights[key] = gradient * x
        if one.operation.gives_weight_gradients:
            self._sums[one.chunk] += self._for_weights.pop(key)


def execute(plan: Plan, weights: Weights) -> Weights:
    """Every stage on a thread of its own; a stage that waits for more than 20 seconds raises."""
    groups = thread_groups(plan.shape.num_stages, timeout_seconds=120)
    with ThreadPoolExecutor(len(groups)) as threads:
        results = [threads.submit(StageThread(plan, group, weights).run) for group in groups]
        return {chunk: weight for result in results for chunk, weight in result.result().items()}
