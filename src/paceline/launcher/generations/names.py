"""What users read of the processes of a job: the one place where the launcher names them. Pure.

Ranks go by their number, and all others by their role. So does the chief where it is the only rank, beside parameter
servers: nobody there thinks of ranks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import CHIEF


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the processes of one generation.

    >>> names = Names({0: "the chief", 1: "ps 0"})
    >>> names.of(0), names.all_of([0]), names.all_of([3]), Names().all_of([0, 1, 2, 5])
    ('the chief', 'the chief', 'rank 3', 'ranks 0-2 and 5')

    Args:
        by_role: Those that do not go by their number, by number.
    """

    by_role: Mapping[int, str] = field(default_factory=dict)

    @property
    def lone_chief(self) -> str | None:
        """The name of rank 0 where there is no other rank; None: ranks go by their numbers."""
        return self.by_role.get(0)

    def of(self, rank: int) -> str:
        """The name of one."""
        return self.by_role.get(rank, f"rank {rank}")

    def all_of(self, ranks: Sequence[int]) -> str:
        """Those of some: of ranks, or of the chief alone."""
        return self.of(ranks[0]) if len(ranks) == 1 else ranks_text(ranks)


def names_of(identities: Iterable[WorkerIdentity]) -> Names:
    """Those of a generation's processes."""
    labels = {one.rank: one.label for one in identities if not one.label.isdecimal()}
    return Names({rank: f"the {label}" if label == CHIEF else label for rank, label in labels.items()})


def ranks_text(ranks: Sequence[int], noun: str = "rank") -> str:
    """Ranks as text.

    >>> ranks_text([1]), ranks_text([0, 1, 2, 5])
    ('rank 1', 'ranks 0-2 and 5')
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    parts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{noun} {listed}" if len(ranks) == 1 else f"{noun}s {listed}"
