"""Rules that scripts give for operations of their own, or for those of TensorFlow that have none here."""

from paceline.spmd.factors import parsed
from paceline.spmd.rules.rule import MapOfFactors, Rule

REGISTERED: dict[str, Rule] = {}
"""Types of operations, and the rules that the script has given for them. They come before the built-in ones."""


def register_rule(operation: str, factors: str, *, linear: tuple[tuple[int, ...], ...] = ()) -> None:
    """Says how an operation can be divided over workers, so that each computes its own rows of it.

    An operation without a rule is computed by every worker from the rows of all: right, and not faster. Call this on
    all workers, before the first step. In plain `python`, and with one worker, nothing changes.

        paceline.register_rule("MatrixInverse", "... M N -> ... M N")   # each matrix alone
        paceline.register_rule("MyProduct", "i k, k j -> i j", linear=((0,), (1,)))

    The first batch of each `fit` is computed with the rule and without, and compared (`--verify`): a rule that is not
    true does not train.

    Args:
        operation: The type of the operation, as `tf.Operation.type` has it: `"MatrixInverse"`.
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
