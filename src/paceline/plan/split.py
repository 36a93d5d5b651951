"""A split of a model's layers into chunks: what it costs, and how a user gives one by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from paceline.errors import ConfigurationError
from paceline.plan.costs import ChunkCost, Costs, GradientSum, Link
from paceline.plan.profile import WHY_TIED, Profile, SharedWeights


@dataclass(frozen=True)
class Split:
    """Which layers each chunk has, and on how many workers each stage is.

    Args:
        cuts: Each chunk ends behind so many layers; the last number is that of all layers.
        replicas: Of every stage. They take a micro-batch's rows in shares.
    """

    cuts: tuple[int, ...]
    replicas: int = 1

    @property
    def chunks(self) -> list[range]:
        """The positions of each chunk's layers."""
        return [range(first, last) for first, last in pairwise((0, *self.cuts))]


def all_reduce_seconds(num_bytes: float, replicas: int, link: Link) -> float:
    """A ring's: each replica sends, and at the same time receives, 2 (r - 1) / r of the bytes."""
    return 2 * (replicas - 1) / replicas * num_bytes / link.bytes_per_second


def costs_of(profile: Profile, split: Split, link: Link, stage_of: Sequence[int] | None = None) -> Costs:
    """What each replica computes, holds and receives for a micro-batch: 1/r of it; r replicas sum their gradients.

    Weights that several chunks of a stage have count in the first of them. Those that several stages have are summed
    over the replicas of all of these, and not over each stage's.

    Args:
        profile: The layers.
        split: Of them.
        link: Between two workers.
        stage_of: The stage of each chunk; None: each has its own.
    """
    chunks = [profile.chunk_cost(chunk.start, chunk.stop) for chunk in split.chunks]
    summed_bytes = [cost.parameter_bytes for cost in chunks]
    sums: dict[tuple[int, ...], float] = {}
    for shared in profile.shared_weights:
        first_of: dict[int, int] = {}  # by stage, the first chunk that has the weights
        for at, chunk in enumerate(split.chunks):
            if not shared.times_in(chunk.start, chunk.stop):
                continue
            stage = stage_of[at] if stage_of else at
            if first_of.setdefault(stage, at) != at:
                chunks[at] = _without(chunks[at], shared)
                summed_bytes[at] -= shared.parameter_bytes
        if len(first_of) > 1:
            for at in first_of.values():
                summed_bytes[at] -= shared.parameter_bytes
            ranks = len(first_of) * split.replicas
            stages = tuple(sorted(first_of))
            sums[stages] = sums.get(stages, 0.0) + all_reduce_seconds(shared.parameter_bytes, ranks, link)
    edges = {edge: -(-num_bytes // split.replicas) for edge, num_bytes in profile.edge_bytes(split.cuts).items()}
    return Costs(
        tuple(
            _divided(cost, split.replicas, all_reduce_seconds(num_bytes, split.replicas, link))
            for cost, num_bytes in zip(chunks, summed_bytes, strict=True)
        ),
        edges,
        link,
        tuple(GradientSum(stages, seconds) for stages, seconds in sorted(sums.items())),
    )


def _without(cost: ChunkCost, shared: SharedWeights) -> ChunkCost:
    return replace(
        cost,
        parameter_bytes=cost.parameter_bytes - shared.parameter_bytes,
        slot_bytes=cost.slot_bytes - shared.slot_bytes,
        update_seconds=cost.update_seconds - shared.update_seconds,
    )


def _divided(cost: ChunkCost, replicas: int, sum_seconds: float) -> ChunkCost:
    return replace(
        cost,
        forward_seconds=cost.forward_seconds / replicas,
        inputs_seconds=cost.inputs_seconds / replicas,
        weights_seconds=cost.weights_seconds / replicas,
        update_seconds=cost.update_seconds + sum_seconds,
        input_bytes=-(-cost.input_bytes // replicas),
        stash_bytes=-(-cost.stash_bytes // replicas),
        weights_stash_bytes=-(-cost.weights_stash_bytes // replicas),
    )


def cuts_of_balance(profile: Profile, balance: Sequence[int], num_chunks: int) -> tuple[int, ...]:
    """The cuts of `balance=[5, 7]`: five layers, then seven.

    Raises:
        ConfigurationError: the numbers do not make `num_chunks` chunks of the profile's layers, or divide a tie.
    """
    if len(balance) != num_chunks or min(balance, default=0) < 1 or sum(balance) != len(profile.layers):
        raise ConfigurationError(
            f"received balance={list(balance)}; expected {num_chunks} numbers from 1 with the sum "
            f"{len(profile.layers)}, the number of layers. [pipeline]"
        )
    return _checked(profile, tuple(accumulate(balance)))


def cuts_of_names(profile: Profile, split_after: Sequence[str], num_chunks: int) -> tuple[int, ...]:
    """The cuts of `split_after=["block3"]`: the first chunk ends with the layer of that name.

    Raises:
        ConfigurationError: not one name less than `num_chunks`, in order, each of a layer that is not the last one; or
            they divide a tie.
    """
    names = [layer.name for layer in profile.layers]
    inner = [names.index(name) + 1 for name in split_after if name in names[:-1]]
    if len(split_after) != num_chunks - 1 or len(inner) != len(split_after) or inner != sorted(set(inner)):
        raise ConfigurationError(
            f"received split_after={list(split_after)}; expected {num_chunks - 1} names in the order of the layers, "
            f"one for each of the {num_chunks} chunks but the last, of {', '.join(names[:-1])}. [pipeline]"
        )
    return _checked(profile, (*inner, len(names)))


def _checked(profile: Profile, cuts: tuple[int, ...]) -> tuple[int, ...]:
    for tie in profile.ties:
        if torn := [cut for cut in cuts if min(tie) < cut <= max(tie)]:
            names = ", ".join(profile.layers[at].name for at in tie)
            raise ConfigurationError(
                f"the layers {names} belong together, but the split cuts behind "
                f"{profile.layers[torn[0] - 1].name}: cut before or behind all of them. {WHY_TIED} [pipeline]"
            )
    return cuts
