"""Which layers each chunk gets, and how many replicas each stage: an exact dynamic programme over the places to cut.

The slowest stage bounds the time of a step, so its time is what is minimised (PipeDream's planner, SOSP 2019). The time
of a stage for one micro-batch is the longest of three things that overlap: its computations, what it receives
(gradients go back at the same time), and the sum of gradients over its replicas. r replicas take a micro-batch's rows
in shares, so the first two take 1/r of the time.

The programme knows nothing of this: it minimises the greatest `value` of a chunk. With seconds for values it finds the
fastest split; with bytes, the smallest limit of memory that any split keeps.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from paceline.errors import ConfigurationError
from paceline.plan.byte_text import byte_text
from paceline.plan.costs import Link
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
    lie further leave less behind them. So the best end is where the two cross, which a binary search finds: chunks x
    cuts x (numbers of workers left to share out) x (numbers of replicas) x log(cuts) calls of `value` at most.

    Args:
        cuts: Where a chunk may end, ascending; the last one is the number of layers.
        num_chunks: How many chunks.
        workers: How many workers they share; all are used.
        replicas: How many a chunk may have.
        value: What is minimised; must not fall if a chunk gets more layers behind its last one.

    Returns:
        The greatest value and the split; None: there is no split without an infinite value.
    """
    # By number of workers, then by first layer, ascending: the best split of that layer and those behind it.
    behind: dict[int, list[_Rest]] = {0: [(cuts[-1], -math.inf, Split((), ()))]}
    for chunk in reversed(range(num_chunks)):
        here: dict[int, list[_Rest]] = {}
        ends: dict[int, list[_Rest]] = {taken: [] for taken in behind}
        # The chunks before need a place each.
        for first in reversed(cuts[chunk - 1 : -1]) if chunk else (0,):
            found: dict[int, _Rest] = {}
            for taken, rests in behind.items():
                _take_ends(first, rests, ends[taken])
                for number in replicas:
                    together = taken + number
                    if together + chunk * min(replicas) > workers:
                        continue
                    one = _best_end(ends[taken], partial(_value_of, value, chunk, first, number))
                    if one and (together not in found or one[0] < found[together][1]):
                        greatest, (last, _, split) = one
                        cut = Split((last, *split.cuts), (number, *split.replicas))
                        found[together] = first, greatest, cut
            for together, rest in found.items():
                here.setdefault(together, []).append(rest)
        behind = {together: rests[::-1] for together, rests in here.items()}
    whole = behind.get(workers)
    return whole[0][1:] if whole else None


_Rest = tuple[int, float, Split]
"""First layer, greatest value, split of the layers from there on."""


def _value_of(value: Value, chunk: int, first: int, number: int, last: int) -> float:
    return value(chunk, first, last, number)


def _take_ends(first: int, rests: list[_Rest], ends: list[_Rest]) -> None:
    """Moves what begins behind `first` to `ends`, from the furthest to the nearest. What lies further than another one
    and leaves no less can never be better, and is dropped: so the nearest leaves most.
    """
    while rests and rests[-1][0] > first:
        rest = rests.pop()
        while ends and ends[-1][1] >= rest[1]:
            ends.pop()
        ends.append(rest)


def _best_end(ends: list[_Rest], value: Callable[[int], float]) -> tuple[float, _Rest] | None:
    """The best of `ends` (see `_take_ends`), with the greater one of its value and what it leaves."""
    # From the furthest to the nearest the value falls, and what is left grows.
    crossing = bisect_left(range(len(ends)), True, key=lambda at: value(ends[at][0]) <= ends[at][1])
    around = [(max(value(end[0]), end[1]), end) for end in ends[max(0, crossing - 1) : crossing + 1]]
    best = min(around, key=lambda one: one[0], default=None)
    return best if best and best[0] < math.inf else None


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

    @property
    def chunks_per_stage(self) -> int:
        """Each may take this part of a worker's limit."""
        return len(self.places) // self.stages

    def seconds(self, chunk: int, first: int, last: int, replicas: int) -> float:
        """What a chunk takes for one micro-batch (see the module's docstring); infinite: it exceeds the limit."""
        limit = self.memory_limit_bytes
        if limit < math.inf and self.num_bytes(chunk, first, last, replicas) * self.chunks_per_stage > limit:
            return math.inf
        known = self._known_seconds
        if (first, last, replicas) not in known:
            known[first, last, replicas] = self._seconds(first, last, replicas)
        return known[first, last, replicas]

    @cached_property
    def _known_seconds(self) -> dict[tuple[int, int, int], float]:
        return {}

    def _seconds(self, first: int, last: int, replicas: int) -> float:
        cost = self.profile.chunk_cost(first, last)
        compute = cost.forward_seconds * (2 if self.recompute else 1) + cost.inputs_seconds + cost.weights_seconds
        receive = cost.input_bytes / self.link.bytes_per_second
        summed = all_reduce_seconds(cost.parameter_bytes, replicas, self.link) / self.micro_batches
        return max(compute / replicas, receive / replicas, summed)

    def num_bytes(self, chunk: int, first: int, last: int, replicas: int) -> float:
        """What a worker holds for a chunk at most: as `memory.Peak.total_bytes`, by the schedule's bounds.

        A stage of v chunks is given 1/v of its stash for each, which is not exact: `memory.peak_of` has the last word.
        """
        place = Place(self.places[chunk], self.stages, self.micro_batches)
        entries = -(-self.schedule.most_stashed(place) // self.chunks_per_stage)
        versions = 1 + self.schedule.delay(place)
        cost = self.profile.chunk_cost(first, last)
        after_inputs = cost.weights_stash_bytes if self.schedule.splits_backward else 0
        waiting = max(cost.input_bytes if self.recompute else cost.stash_bytes, after_inputs)
        # One entry is used, and gradients are made of it; the others wait for their turn.
        stash = (entries - 1) * -(-waiting // replicas) + -(-cost.stash_bytes // replicas)
        stash += -(-cost.weights_stash_bytes // replicas)
        return (versions + 1) * cost.parameter_bytes + cost.slot_bytes + stash


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
