"""What a rule is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from paceline.spmd.decisions import Build, Decision, Operation
from paceline.spmd.factors import Linear, decide
from paceline.spmd.placements import Sharded, Spec

Rule = Callable[[Operation, Sequence[Spec]], "Decision | None"]
"""From an operation and what is known of its inputs to how it runs on a rank; None: on whole inputs."""


@dataclass(frozen=True)
class MapOfFactors:
    """A rule that is a map of factors (`factors.py`).

    Args:
        text: The map, or what writes it for an operation with these inputs; None from it: whole inputs.
        linear: The inputs in which the operation is linear.
        without_rows: How the operation is built where it would go wrong on a rank that has no row (`no_rows.py`).
    """

    text: "str | Callable[[Operation, Sequence[Spec]], str | None]"
    linear: Linear = ()
    without_rows: "Callable[[Decision], Build] | None" = None

    def __call__(self, op: Operation, specs: Sequence[Spec]) -> Decision | None:
        """What the map says of this operation."""
        text = self.text if isinstance(self.text, str) else self.text(op, specs)
        decision = None if text is None else decide(op, specs, text, linear=self.linear)
        if (
            decision is None
            or self.without_rows is None
            or not any(isinstance(need, Sharded) for need in decision.needs)
        ):
            return decision
        return replace(decision, build=self.without_rows(decision))


def rules(types: str | Iterable[str], rule: Rule) -> dict[str, Rule]:
    """The same rule for several types of operations, named with spaces between."""
    return dict.fromkeys(types.split() if isinstance(types, str) else types, rule)


def letters(count: int, prefix: str = "d") -> list[str]:
    """Names of factors that may be divided."""
    return [f"{prefix}{index}" for index in range(count)]
