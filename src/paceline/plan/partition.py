"""Which layers each chunk gets: an exact dynamic programme over the places to cut.

The slowest stage bounds the time of a step, so its time is what is minimised (PipeDream's planner, SOSP 2019). The time
of a stage for one micro-batch is the longest of three things that overlap: its computations, what it receives
(gradients go back at the same time), and the sum of gradients over its replicas. r replicas take a micro-batch's rows
in shares, so the first two take 1/r of the time.

The programme knows nothing of this: it minimises the greatest `value` of a chunk. With seconds for values it finds the
fastest split; with bytes, the smallest limit of memory that any split keeps.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from paceline.errors import ConfigurationError
from paceline.plan.byte_text import byte_text
from paceline.plan.costs import ChunkCost, Link
from paceline.plan.profile import WHY_TIED, Profile
from paceline.plan.schedules import Place, Schedule
from paceline.plan.split import Split, all_reduce_seconds

Value = Callable[[int, int, int], float]
"""(number of the chunk, its first layer, the layer behind its last one) → a value; infinite: not allowed."""


def least_greatest(cuts: Sequence[int], num_chunks: int, value: Value) -> tuple[float, tuple[int, ...]] | None:
    """The split whose greatest value is least; of several equal ones, always the same.

    Of a chunk that begins at `first`, the value grows with its end, and of the ends that are worth a look, those that
    lie further leave less behind them. So the best end is where the two cross. The place where they crossed for the
    chunk that begins one cut later is near: a search from there asks for few values, and for twice the logarithm of
    all at most. Looked at are chunks x places where they can begin.

    Args:
        cuts: Where a chunk may end, ascending; the last one is the number of layers.
        num_chunks: How many chunks.
        value: What is minimised; must not fall if a chunk gets more layers behind its last one.

    Returns:
        The greatest value, and where each chunk ends; None: there is no split without an infinite value.
    """
    # By first layer, ascending: the best split of that layer and those behind it.
    behind: list[_Rest] = [(cuts[-1], -math.inf, None)]
    for chunk in reversed(range(num_chunks)):
        here, ends = list[_Rest](), list[_Rest]()
        crossing = 0
        # The chunks before need a place each, and so do this one and those behind.
        for first in reversed(cuts[chunk - 1 : len(cuts) - num_chunks + chunk]) if chunk else (0,):
            _take_ends(first, behind, ends)
            if not ends:
                continue
            crossing, before = _crossing(ends, value, chunk, first, crossing)
            greatest, last, rest = math.inf, 0, None
            if before < greatest:  # of that end the value is greater than what it leaves, of the next one less
                last, greatest, rest = ends[crossing - 1][0], before, ends[crossing - 1][2]
            if crossing < len(ends) and ends[crossing][1] < greatest:
                last, greatest, rest = ends[crossing]
            if greatest < math.inf:
                here.append((first, greatest, (last, rest)))
        behind = here[::-1]
    return (behind[0][1], tuple(_ends(behind[0][2]))) if behind else None


_Chain = tuple[int, "_Chain"] | None
"""A chunk's end, and the chunks behind it: what several splits have in common is there once."""

_Rest = tuple[int, float, _Chain]
"""First layer, greatest value, split of the layers from there on."""


def _ends(chain: _Chain) -> Iterator[int]:
    while chain:
        last, chain = chain
        yield last


def _take_ends(first: int, rests: list[_Rest], ends: list[_Rest]) -> None:
    """Moves what begins behind `first` to `ends`, from the furthest to the nearest. What lies further than another one
    and leaves no less can never be better, and is dropped: so the nearest leaves most.
    """
    while rests and rests[-1][0] > first:
        rest = rests.pop()
        while ends and ends[-1][1] >= rest[1]:
            ends.pop()
        ends.append(rest)


def _crossing(ends: list[_Rest], value: Value, chunk: int, first: int, near: int) -> tuple[int, float]:
    """Which of `ends` (see `_take_ends`) is the furthest whose value is not greater than what it leaves, looked for
    from `near` on in steps that double; their number: none. From the furthest to the nearest the value falls, and what
    is left grows; so what is found does not depend on `near`. And the value of the end before it; infinite: none.
    """
    low, high, at, step, before = 0, len(ends), min(near, len(ends) - 1), 1, math.inf
    while low < high:
        end = ends[at]
        if (one := value(chunk, first, end[0])) <= end[1]:
            high, at = at, at - step
        else:
            low, at, before = at + 1, at + step, one
        step *= 2
        if not low <= at < high:
            at = (low + high) // 2
    return low, before


@dataclass(frozen=True)
class Demand:
    """What a split is for.

    Args:
        profile: The layers.
        schedule: Decides how much is stashed.
        stages: Places in the pipeline.
        micro_batches: Of one batch.
        link: Between two stages, and between two replicas.
        recompute: Whether only inputs are stashed.
        memory_limit_bytes: Of each worker.
        replicas: Of every stage.
    """

    profile: Profile
    schedule: Schedule
    stages: int
    micro_batches: int
    link: Link = field(default_factory=Link)
    recompute: bool = False
    memory_limit_bytes: float = math.inf
    replicas: int = 1

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The stage of each chunk."""
        return self.schedule.places(self.stages)

    @cached_property
    def chunks_per_stage(self) -> int:
        """Each may take this part of a worker's limit."""
        return len(self.places) // self.stages

    def seconds(self, chunk: int, first: int, last: int) -> float:
        """What a chunk takes for one micro-batch (see the module's docstring); infinite: it exceeds the limit."""
        seconds, each, parameters, once = self._demands(first, last)
        if self.memory_limit_bytes < math.inf:
            others, copies = self._bounds[chunk]
            if (others * each + copies * parameters + once) * self.chunks_per_stage > self.memory_limit_bytes:
                return math.inf
        return seconds

    def num_bytes(self, chunk: int, first: int, last: int) -> float:
        """What a worker holds for a chunk at most: as `memory.Peak.total_bytes`, by the schedule's bounds.

        A stage of v chunks is given 1/v of its stash for each, which is not exact: `memory.Peak` has the last word.
        """
        _, each, parameters, once = self._demands(first, last)
        others, copies = self._bounds[chunk]
        return others * each + copies * parameters + once

    @cached_property
    def _bounds(self) -> list[tuple[int, int]]:
        """Of each chunk: the most entries in its stash but the one that is used, and copies of its weights and their
        gradients.
        """
        places = [Place(stage, self.stages, self.micro_batches) for stage in self.places]
        return [
            (-(-self.schedule.most_stashed(place) // self.chunks_per_stage) - 1, 2 + self.schedule.delay(place))
            for place in places
        ]

    def _demands(self, first: int, last: int) -> tuple[float, int, int, int]:
        """What layers take as any chunk: seconds, bytes of an entry of the stash that waits, of the weights, and of
        what is there once: the slots, and the entry of which gradients are made, with these. Asked for again and again.
        """
        if (found := self._known_demands.get((first, last))) is None:
            replicas = self.replicas
            cost = self.profile.chunk_cost(first, last)
            after_inputs = cost.weights_stash_bytes if self.schedule.splits_backward else 0
            waiting = max(cost.input_bytes if self.recompute else cost.stash_bytes, after_inputs)
            used = -(-cost.stash_bytes // replicas) - (-cost.weights_stash_bytes // replicas)
            found = self._seconds(cost), -(-waiting // replicas), cost.parameter_bytes, cost.slot_bytes + used
            self._known_demands[first, last] = found
        return found

    @cached_property
    def _known_demands(self) -> dict[tuple[int, int], tuple[float, int, int, int]]:
        return {}

    def _seconds(self, cost: ChunkCost) -> float:
        compute = cost.forward_seconds * (2 if self.recompute else 1) + cost.inputs_seconds + cost.weights_seconds
        receive = cost.input_bytes / self.link.bytes_per_second
        summed = all_reduce_seconds(cost.parameter_bytes, self.replicas, self.link) / self.micro_batches
        return max(compute / self.replicas, receive / self.replicas, summed)


def best_split(demand: Demand) -> tuple[float, Split]:
    """The split whose slowest chunk is fastest.

    Returns:
        The slowest chunk's seconds for one micro-batch, and the split.

    Raises:
        ConfigurationError: no split keeps the limit of memory (names the smallest one that would do), or there are not
            enough places to cut.
    """
    cuts, num_chunks = demand.profile.cuts, len(demand.places)
    if found := least_greatest(cuts, num_chunks, demand.seconds):
        return found[0], Split(found[1], demand.replicas)
    least = least_greatest(cuts, num_chunks, demand.num_bytes)
    if least is None:
        raise ConfigurationError(
            f"{len(demand.profile.layers)} layers, which can be cut in {len(cuts) - 1} places, cannot be divided into "
            f"{num_chunks} chunks: ask for fewer stages. {_told_ties(demand.profile)}[pipeline]"
        )
    raise ConfigurationError(
        f"no split into {num_chunks} chunks for {demand.schedule.name} with {demand.micro_batches} micro-batches fits "
        f"into {byte_text(demand.memory_limit_bytes)} per worker; the smallest limit that would do is "
        f'memory_limit="{math.ceil(least[0] * demand.chunks_per_stage / 1e6)}MB". [pipeline]'
    )


def _told_ties(profile: Profile) -> str:
    return f"Layers that belong together: {profile.told_ties}. {WHY_TIED} " if profile.ties else ""
