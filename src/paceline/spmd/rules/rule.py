"""What a rule is; and the rules that a script gives for operations that have none here."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from paceline.spmd.decisions import Build, Decision, Operation
from paceline.spmd.factors import Linear, decide, parsed
from paceline.spmd.placements import Sharded, Spec
from paceline.spmd.rules import no_rows

Rule = Callable[[Operation, Sequence[Spec]], "Decision | None"]
"""From an operation and what is known of its inputs to how it runs on a rank; None: on whole inputs."""


@dataclass(frozen=True)
class MapOfFactors:
    """A rule that is a map of factors (`factors.py`).

    Args:
        text: The map, or what writes it for an operation with these inputs; None from it: whole inputs.
        linear: The inputs in which the operation is linear.
        without_rows: How the operation is built where it would go wrong on a rank that has no row (`no_rows.py`).
        stays_filled: It goes right there, but TensorFlow merges it with the operation before it, which may not
            (`no_rows.still_filled`). In a dataset, such an operation is still one of which a rank computes own rows.
    """

    text: "str | Callable[[Operation, Sequence[Spec]], str | None]"
    linear: Linear = ()
    without_rows: "Callable[[Decision], Build] | None" = None
    stays_filled: bool = False

    def __call__(self, op: Operation, specs: Sequence[Spec]) -> Decision | None:
        """What the map says of this operation."""
        text = self.text if isinstance(self.text, str) else self.text(op, specs)
        decision = None if text is None else decide(op, specs, text, linear=self.linear)
        build = no_rows.still_filled if self.stays_filled else self.without_rows
        if decision is None or build is None or not any(isinstance(need, Sharded) for need in decision.needs):
            return decision
        return replace(decision, build=build(decision))


def rules(types: str | Iterable[str], rule: Rule) -> dict[str, Rule]:
    """The same rule for several types of operations, named with spaces between."""
    return dict.fromkeys(types.split() if isinstance(types, str) else types, rule)


def letters(count: int, prefix: str = "d") -> list[str]:
    """Names of factors that may be divided."""
    return [f"{prefix}{index}" for index in range(count)]


REGISTERED: dict[str, Rule] = {}
"""Types of operations, and the rules that the script has given for them. They come before the built-in ones."""


def register_rule(operation: str, factors: str, *, linear: tuple[tuple[int, ...], ...] = ()) -> None:
    """Says how an operation can be divided over workers, so that each computes its own rows of it.

    An operation without a rule is computed by every worker from the rows of all: right, and not faster. Call this on
    all workers, before the first step. In plain `python`, and with one worker, nothing changes.

        paceline.register_rule("Lu", "... M N -> ... M N, ... M")   # each matrix of a batch alone
        paceline.register_rule("MyProduct", "i k, k j -> i j", linear=((0,), (1,)))

    The first batch of each `fit` is computed with the rule and without, and compared (`--verify`): a rule that is not
    true does not train.

    Args:
        operation: The type of the operation, as `tf.Operation.type` has it: `"Lu"`.
        factors: The indices of its inputs and outputs, as in an einsum. The operation does the same for each value of
            an index with a small letter, and needs all values of one with a capital. `...` are leading dimensions that
            are broadcast as NumPy does. An index that no output has is summed over.
        linear: Groups of inputs, by number, in each of which the operation is linear while the other inputs are fixed:
            a product of two has two groups of one, a sum of two has one group of two.

    Raises:
        ValueError: If `factors` is no map, or `linear` names an input that the map does not have.
    """
    num_inputs = len(parsed(factors).inputs)
    if unknown := sorted({index for group in linear for index in group} - set(range(num_inputs))):
        raise ValueError(f"linear={linear!r} names input {unknown[0]}, but {factors!r} has {num_inputs} inputs")
    REGISTERED[operation] = MapOfFactors(factors, linear=linear)
