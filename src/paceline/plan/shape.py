"""Which stage has which chunk of a model, and which chunk reads what another one made."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Shape:
    """The chunks of a model on the stages of a pipeline.

    Args:
        stage_of: The stage of each chunk; chunks are in the order of the layers.
        edges: Pairs (source, target) of chunks: `target` reads a tensor that `source` made. An edge to another than
            the next chunk is a skip; its tensors go there directly.

    Raises:
        ValueError: a stage without a chunk, or an edge that leads to no later chunk.
    """

    stage_of: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if set(self.stage_of) != set(range(max(self.stage_of, default=-1) + 1)) or not self.stage_of:
            raise ValueError(
                f"received chunks on the stages {self.stage_of}; expected each stage from 0 to have one. [argument]"
            )
        if wrong := [edge for edge in self.edges if not 0 <= edge[0] < edge[1] < len(self.stage_of)]:
            raise ValueError(
                f"received the edges {wrong} between {len(self.stage_of)} chunks; expected each from a chunk to a "
                "later one. [argument]"
            )
        if list(self.edges) != sorted(set(self.edges)):
            raise ValueError(f"received the edges {self.edges}; expected each once, in order. [argument]")

    @property
    def num_chunks(self) -> int:
        """Of all stages."""
        return len(self.stage_of)

    @property
    def num_stages(self) -> int:
        """Places in the pipeline."""
        return max(self.stage_of) + 1

    def chunks_of(self, stage: int) -> list[int]:
        """The chunks of `stage`, in the order of the layers."""
        return [*self._chunks_of.get(stage, ())]

    def sources_of(self, chunk: int) -> list[int]:
        """The chunks that `chunk` reads from."""
        return [*self._sources_of.get(chunk, ())]

    def targets_of(self, chunk: int) -> list[int]:
        """The chunks that read from `chunk`."""
        return [*self._targets_of.get(chunk, ())]

    def tag(self, source: int, target: int, is_gradient: bool) -> int:
        """A number for each edge and direction; micro-batches need none, as messages of one tag keep their order."""
        return 2 * self._numbers_of_edges[source, target] + is_gradient

    # A plan asks for each computation and message: looking through all edges each time takes a square of the stages.

    @cached_property
    def _chunks_of(self) -> dict[int, list[int]]:
        return _grouped((place, chunk) for chunk, place in enumerate(self.stage_of))

    @cached_property
    def _sources_of(self) -> dict[int, list[int]]:
        return _grouped((target, source) for source, target in self.edges)

    @cached_property
    def _targets_of(self) -> dict[int, list[int]]:
        return _grouped(self.edges)

    @cached_property
    def _numbers_of_edges(self) -> dict[tuple[int, int], int]:
        return {edge: number for number, edge in enumerate(self.edges)}


def _grouped(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for group, member in pairs:
        groups.setdefault(group, []).append(member)
    return groups


def chain(num_chunks: int, skips: Iterable[tuple[int, int]] = ()) -> tuple[tuple[int, int], ...]:
    """The edges of chunks that each read from the one before, and of `skips` besides.

    >>> chain(4, skips=[(0, 3)])
    ((0, 1), (0, 3), (1, 2), (2, 3))
    """
    return tuple(sorted({*((chunk, chunk + 1) for chunk in range(num_chunks - 1)), *skips}))


def loop_places(stages: int, chunks_per_stage: int = 1) -> tuple[int, ...]:
    """The stage of each chunk if the chunks go round the stages (interleaved, Megatron-LM 2021).

    >>> loop_places(3, 2)
    (0, 1, 2, 0, 1, 2)
    """
    return tuple(range(stages)) * chunks_per_stage


def vee_places(stages: int) -> tuple[int, ...]:
    """The stage of each chunk if the chunks go to the last stage and back (ZB-V): the first stage has the last chunk.

    >>> vee_places(3)
    (0, 1, 2, 2, 1, 0)
    """
    return (*range(stages), *reversed(range(stages)))
