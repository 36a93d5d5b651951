"""The layers of a model with what they cost, and what any run of consecutive layers costs as a chunk."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from paceline.plan.costs import ChunkCost
from paceline.plan.schedules import Schedule

WHY_TIED = (
    "They share variables that layers assign themselves, such as moving averages or the state of a seed, or weights "
    "under an asynchronous schedule, whose stages have different versions of weights."
)


@dataclass(frozen=True)
class Layer:
    """One layer, on one micro-batch.

    Args:
        name: Its own.
        forward_seconds: F.
        inputs_seconds: B.
        weights_seconds: W.
        reads: The positions of the layers whose output it reads.
        output_bytes: Of what it makes.
        stash_bytes: What is held of it from F to B.
        weights_stash_bytes: What is held of it from B to W.
        parameter_bytes: Its weights.
        slot_bytes: What the optimizer keeps beside them.
        update_seconds: The optimizer's update of its weights.
    """

    name: str
    forward_seconds: float
    inputs_seconds: float
    weights_seconds: float
    reads: tuple[int, ...] = ()
    output_bytes: int = 0
    stash_bytes: int = 0
    weights_stash_bytes: int = 0
    parameter_bytes: int = 0
    slot_bytes: int = 0
    update_seconds: float = 0.0


@dataclass(frozen=True)
class SharedWeights:
    """Weights that several layers have. A stage that has some of these layers holds them once; several stages add up
    their gradients.

    Args:
        layers: The positions of all layers that have them, ascending.
        parameter_bytes: Theirs; a part of what each of the layers has.
        slot_bytes: Likewise.
        update_seconds: Likewise.
    """

    layers: tuple[int, ...]
    parameter_bytes: int
    slot_bytes: int = 0
    update_seconds: float = 0.0

    def times_in(self, first: int, last: int) -> int:
        """How many of the layers first to last - 1 have them."""
        return bisect_left(self.layers, last) - bisect_left(self.layers, first)


@dataclass(frozen=True)
class Profile:
    """A model's layers in topological order. `first` and `last` below: a chunk has the layers first to last - 1.

    Args:
        layers: At least one.
        ties: Groups of positions of layers that must be in one chunk, whatever the schedule.
        sharing: Groups of positions of layers that share weights: in one chunk under asynchronous schedules.
        call_seconds: What F and B of a chunk take besides its layers, however few it has: a call each.
        shared_weights: What several layers have in common.

    Raises:
        ValueError: a layer that reads from itself or a later one, a tie of no layer, or two layers of one name.
    """

    layers: tuple[Layer, ...]
    ties: tuple[tuple[int, ...], ...] = ()
    sharing: tuple[tuple[int, ...], ...] = ()
    call_seconds: float = 0.0
    shared_weights: tuple[SharedWeights, ...] = ()

    def __post_init__(self) -> None:
        positions = range(len(self.layers))
        late = [
            layer.name for at, layer in enumerate(self.layers) if any(read not in range(at) for read in layer.reads)
        ]
        lost = [tie for tie in self._groups if not tie or any(at not in positions for at in tie)]
        if not self.layers or late or lost or len({layer.name for layer in self.layers}) < len(self.layers):
            raise ValueError(
                f"received {len(self.layers)} layers, of which {late} read from no earlier layer, and the ties {lost} "
                "of no layers; expected at least one layer, each with its own name and after those it reads. [argument]"
            )

    @property
    def _groups(self) -> tuple[tuple[int, ...], ...]:
        return (*self.ties, *self.sharing, *(shared.layers for shared in self.shared_weights))

    def under(self, schedule: Schedule | None) -> "Profile":
        """The profile for a schedule, with all of its ties; None: for a synchronous one."""
        if schedule is None or schedule.is_synchronous or not self.sharing:
            return self
        return replace(self, ties=(*self.ties, *self.sharing), sharing=())

    @property
    def told_ties(self) -> str:
        """The names of the layers that are tied."""
        return "; ".join(", ".join(self.layers[at].name for at in tie) for tie in self.ties)

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """Where a chunk may end: behind so many layers. Ties forbid the cuts between their layers."""
        inside = {cut for tie in self.ties for cut in range(min(tie) + 1, max(tie) + 1)}
        return tuple(cut for cut in range(1, len(self.layers) + 1) if cut not in inside)

    @cached_property
    def _sums(self) -> list[tuple[float, ...]]:
        rows: list[tuple[float, ...]] = [
            (
                *(layer.forward_seconds, layer.inputs_seconds, layer.weights_seconds, layer.update_seconds),
                *(layer.stash_bytes, layer.weights_stash_bytes, layer.parameter_bytes, layer.slot_bytes),
            )
            for layer in self.layers
        ]
        nothing: tuple[float, ...] = (0,) * 8
        return list(accumulate(rows, lambda sums, row: tuple(map(sum, zip(sums, row, strict=True))), initial=nothing))

    def received_bytes(self, first: int, last: int) -> int:
        """What the chunk receives: each output of an earlier layer once, though several of its layers read it."""
        readers, sums = self._received[first]
        return sums[bisect_left(readers, last)]

    @cached_property
    def _received(self) -> list[tuple[list[int], list[int]]]:
        """For each first layer: who is first to read an output of an earlier layer, and the bytes so far."""
        readers: list[list[int]] = [[] for _ in self.layers]
        for at, layer in enumerate(self.layers):
            for source in {*layer.reads}:
                readers[source].append(at)
        found, open_sources = [], set[int]()
        for first in range(len(self.layers) + 1):
            open_sources = {source for source in open_sources if readers[source][-1] >= first}
            pairs = sorted(
                (readers[source][bisect_left(readers[source], first)], self.layers[source].output_bytes)
                for source in open_sources
            )
            sums = accumulate((num_bytes for _, num_bytes in pairs), initial=0)
            found.append(([reader for reader, _ in pairs], list(sums)))
            if first < len(self.layers) and readers[first]:
                open_sources.add(first)
        return found

    @cached_property
    def _known_costs(self) -> dict[tuple[int, int], ChunkCost]:
        return {}

    def chunk_cost(self, first: int, last: int) -> ChunkCost:
        """The layers' costs, added, with weights that several of them have once; what the chunk receives is part of its
        stash.
        """
        if (first, last) not in self._known_costs:
            self._known_costs[first, last] = self._chunk_cost(first, last)
        return self._known_costs[first, last]

    def _chunk_cost(self, first: int, last: int) -> ChunkCost:
        sums = [end - begin for begin, end in zip(self._sums[first], self._sums[last], strict=True)]
        forward, inputs, weights, update = sums[:4]
        forward, inputs = forward + self.call_seconds, inputs + self.call_seconds
        stash, weights_stash, parameters, slots = map(int, sums[4:])
        for shared in self.shared_weights:
            if (again := shared.times_in(first, last) - 1) > 0:
                parameters, slots = parameters - again * shared.parameter_bytes, slots - again * shared.slot_bytes
                update -= again * shared.update_seconds
        received = self.received_bytes(first, last)
        return ChunkCost(forward, inputs, weights, update, received, stash + received, weights_stash, parameters, slots)

    def edge_bytes(self, cuts: Sequence[int]) -> dict[tuple[int, int], int]:
        """What each chunk sends to which later one, if the chunks end at `cuts`; has an entry for each edge."""
        chunk_of = [chunk for chunk, (first, last) in enumerate(pairwise((0, *cuts))) for _ in range(first, last)]
        sent = {
            (source, chunk_of[at])
            for at, layer in enumerate(self.layers)
            for source in layer.reads
            if chunk_of[source] != chunk_of[at]
        }
        edges: dict[tuple[int, int], int] = {}
        for source, target in sorted(sent):
            edge = chunk_of[source], target
            edges[edge] = edges.get(edge, 0) + self.layers[source].output_bytes
        return dict(sorted(edges.items()))
