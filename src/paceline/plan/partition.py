"""Which layers each chunk gets, and how many replicas each stage: an exact dynamic programme over the places to cut.

The slowest stage bounds the time of a step, so its time is what is minimised (PipeDream's planner, SOSP 2019). The time
of a stage for one micro-batch is the longest of three things that overlap: its computations, what it receives
(gradients go back at the same time), and the sum of gradients over its replicas. r replicas take a micro-batch's rows
in shares, so the first two take 1/r of the time.

The programme knows nothing of this: it minimises the greatest `value` of a chunk. With seconds for values it finds the
fastest split; with bytes, the smallest limit of memory that any split keeps.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from paceline.errors import ConfigurationError
from paceline.plan.byte_text import byte_text
from paceline.plan.costs import ChunkCost, Link
from paceline.plan.profile import WHY_TIED, Profile
from paceline.plan.schedules import Place, Schedule
from paceline.plan.split import Split, all_reduce_seconds

Value = Callable[[int, int, int, int], float]
"""(number of the chunk, its first layer, the layer behind its last one, replicas) → a value; infinite: not allowed."""


def least_greatest(
    cuts: Sequence[int], num_chunks: int, workers: int, replicas: Collection[int], value: Value
) -> tuple[float, Split] | None:
    """The split whose greatest value is least; of several equal ones, always the same.

    Of a chunk that begins at `first`, the value grows with its end, and of the ends that are worth a look, those that
    lie further leave less behind them. So the best end is where the two cross. The place where they crossed for the
    chunk that begins one cut later is near: a search from there asks for few values, and for twice the logarithm of
    all at most. Looked at are chunks x places where they can begin x (numbers of workers left) x (numbers of replicas).

    Args:
        cuts: Where a chunk may end, ascending; the last one is the number of layers.
        num_chunks: How many chunks.
        workers: How many workers they share; all are used.
        replicas: How many a chunk may have.
        value: What is minimised; must not fall if a chunk gets more layers behind its last one.

    Returns:
        The greatest value and the split; None: there is no split without an infinite value.
    """
    fewest = min(replicas)
    # By number of workers, then by first layer, ascending: the best split of that layer and those behind it.
    behind: dict[int, list[_Rest]] = {0: [(cuts[-1], -math.inf, None)]}
    for chunk in reversed(range(num_chunks)):
        here: dict[int, list[_Rest]] = {}
        ends: dict[int, list[_Rest]] = {taken: [] for taken in behind}
        crossings: dict[tuple[int, int], int] = {}
        # The chunks before need a place each, and so do this one and those behind.
        for first in reversed(cuts[chunk - 1 : len(cuts) - num_chunks + chunk]) if chunk else (0,):
            found: dict[int, _Rest] = {}
            for taken, rests in behind.items():
                some = ends[taken]
                _take_ends(first, rests, some)
                for number in replicas:
                    together = taken + number
                    if together + chunk * fewest > workers or not some:
                        continue
                    crossing = _crossing(some, value, chunk, first, number, crossings.get((taken, number), 0))
                    crossings[taken, number] = crossing
                    greatest, last, rest = math.inf, 0, None
                    for end in some[max(0, crossing - 1) : crossing + 1]:
                        if (one := max(value(chunk, first, end[0], number), end[1])) < greatest:
                            greatest, last, rest = one, end[0], end[2]
                    if greatest < math.inf and (together not in found or greatest < found[together][1]):
                        found[together] = first, greatest, (last, number, rest)
            for together, rest_here in found.items():
                here.setdefault(together, []).append(rest_here)
        behind = {together: rests[::-1] for together, rests in here.items()}
    whole = behind.get(workers)
    return (whole[0][1], _split(whole[0][2])) if whole else None


_Chain = tuple[int, int, "_Chain"] | None
"""A chunk's end, its replicas, and the chunks behind it: what several splits have in common is there once."""

_Rest = tuple[int, float, _Chain]
"""First layer, greatest value, split of the layers from there on."""


def _split(chain: _Chain) -> Split:
    cuts, replicas = list[int](), list[int]()
    while chain:
        last, number, chain = chain
        cuts.append(last)
        replicas.append(number)
    return Split(tuple(cuts), tuple(replicas))


def _take_ends(first: int, rests: list[_Rest], ends: list[_Rest]) -> None:
    """Moves what begins behind `first` to `ends`, from the furthest to the nearest. What lies further than another one
    and leaves no less can never be better, and is dropped: so the nearest leaves most.
    """
    while rests and rests[-1][0] > first:
        rest = rests.pop()
        while ends and ends[-1][1] >= rest[1]:
            ends.pop()
        ends.append(rest)


def _crossing(ends: list[_Rest], value: Value, chunk: int, first: int, number: int, near: int) -> int:
    """Which of `ends` (see `_take_ends`) is the furthest whose value is not greater than what it leaves, looked for
    from `near` on in steps that double; their number: none. From the furthest to the nearest the value falls, and what
    is left grows; so what is found does not depend on `near`.
    """
    low, high, at, step = 0, len(ends), min(near, len(ends) - 1), 1
    while low < high:
        end = ends[at]
        if value(chunk, first, end[0], number) <= end[1]:
            high, at = at, at - step
        else:
            low, at = at + 1, at + step
        step *= 2
        if not low <= at < high:
            at = (low + high) // 2
    return low


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
    """

    profile: Profile
    schedule: Schedule
    stages: int
    micro_batches: int
    link: Link = field(default_factory=Link)
    recompute: bool = False
    memory_limit_bytes: float = math.inf

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The stage of each chunk."""
        return self.schedule.places(self.stages)

    @cached_property
    def chunks_per_stage(self) -> int:
        """Each may take this part of a worker's limit."""
        return len(self.places) // self.stages

    def seconds(self, chunk: int, first: int, last: int, replicas: int) -> float:
        """What a chunk takes for one micro-batch (see the module's docstring); infinite: it exceeds the limit."""
        seconds, each, parameters, once = self._demands(first, last, replicas)
        if self.memory_limit_bytes < math.inf:
            others, copies = self._bounds[chunk]
            if (others * each + copies * parameters + once) * self.chunks_per_stage > self.memory_limit_bytes:
                return math.inf
        return seconds

    def num_bytes(self, chunk: int, first: int, last: int, replicas: int) -> float:
        """What a worker holds for a chunk at most: as `memory.Peak.total_bytes`, by the schedule's bounds.

        A stage of v chunks is given 1/v of its stash for each, which is not exact: `memory.Peak` has the last word.
        """
        _, each, parameters, once = self._demands(first, last, replicas)
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

    def _demands(self, first: int, last: int, replicas: int) -> tuple[float, int, int, int]:
        """What layers take as any chunk: seconds, bytes of an entry of the stash that waits, of the weights, and of
        what is there once: the slots, and the entry of which gradients are made, with these. Asked for again and again.
        """
        key = first, last, replicas
        if (found := self._known_demands.get(key)) is None:
            cost = self.profile.chunk_cost(first, last)
            after_inputs = cost.weights_stash_bytes if self.schedule.splits_backward else 0
            waiting = max(cost.input_bytes if self.recompute else cost.stash_bytes, after_inputs)
            used = -(-cost.stash_bytes // replicas) - (-cost.weights_stash_bytes // replicas)
            found = self._seconds(cost, replicas), -(-waiting // replicas), cost.parameter_bytes, cost.slot_bytes + used
            self._known_demands[key] = found
        return found

    @cached_property
    def _known_demands(self) -> dict[tuple[int, int, int], tuple[float, int, int, int]]:
        return {}

    def _seconds(self, cost: ChunkCost, replicas: int) -> float:
        compute = cost.forward_seconds * (2 if self.recompute else 1) + cost.inputs_seconds + cost.weights_seconds
        receive = cost.input_bytes / self.link.bytes_per_second
        summed = all_reduce_seconds(cost.parameter_bytes, replicas, self.link) / self.micro_batches
        return max(compute / replicas, receive / replicas, summed)


def best_split(demand: Demand, replicas: int = 1) -> tuple[float, Split]:
    """The split whose slowest chunk is fastest, with `replicas` of every stage.

    Returns:
        The slowest chunk's seconds for one micro-batch, and the split.

    Raises:
        ConfigurationError: no split keeps the limit of memory (names the smallest one that would do), or there are not
            enough places to cut.
    """
    return _best(demand, len(demand.places) * replicas, (replicas,))


def best_replicated_split(
    profile: Profile,
    schedule: Schedule,
    workers: int,
    micro_batches: int,
    *,
    link: Link | None = None,
    memory_limit_bytes: float = math.inf,
) -> tuple[float, Split]:
    """PipeDream's planner: also chooses the number of stages, and each stage's replicas, for a number of workers.

    Args:
        profile: The layers.
        schedule: One with one chunk on each stage.
        workers: All are used.
        micro_batches: Of one batch.
        link: Between two workers.
        memory_limit_bytes: Of each worker.

    Returns:
        The slowest stage's seconds for one micro-batch, and the split; of equal ones that with the fewest stages.

    Raises:
        ConfigurationError: no split keeps the limit, or there are fewer micro-batches than the schedule needs.
    """
    found: list[tuple[float, Split]] = []
    refusal = ConfigurationError(f"{schedule.name} needs more than {micro_batches} micro-batches. [pipeline]")
    for stages in range(1, min(workers, len(profile.cuts)) + 1):
        if micro_batches < schedule.fewest_micro_batches(stages):
            break
        demand = Demand(profile, schedule, stages, micro_batches, link or Link(), memory_limit_bytes=memory_limit_bytes)
        try:
            found.append(_best(demand, workers, range(1, workers - stages + 2)))
        except ConfigurationError as error:
            refusal = error
    if not found:
        raise refusal
    return min(found, key=lambda one: one[0])


def _best(demand: Demand, workers: int, replicas: Collection[int]) -> tuple[float, Split]:
    cuts, num_chunks = demand.profile.cuts, len(demand.places)
    if found := least_greatest(cuts, num_chunks, workers, replicas, demand.seconds):
        return found
    least = least_greatest(cuts, num_chunks, workers, replicas, demand.num_bytes)
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
