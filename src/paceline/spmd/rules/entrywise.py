"""Operations that compute each entry from the entries at the same place.

Kernels work on several entries at once, and on the rest of a tensor one by one. Where both round each number by itself
(sums, products, quotients, roots, casts), own rows are bit by bit those of one worker: these operations are `EXACT`.
Functions that are approximated (`Exp`, `Tanh`) may have another last bit in the rest, so it depends on how many rows
there are.
"""

from collections.abc import Sequence

from paceline.spmd.decisions import Decision, Operation
from paceline.spmd.dividing import dividing
from paceline.spmd.factors import decide
from paceline.spmd.placements import P, Partial, R, Spec
from paceline.spmd.rules.rule import MapOfFactors, Rule, rules


def _same_everywhere(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Zeros and ones of the same shape: of an addend they are those of the sum."""
    if isinstance(specs[0].placement, Partial):
        return Decision((P,), (Spec(R, specs[0].dims),))
    return decide(op, specs, "... -> ...")


def _sum_of_many(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """`..., ..., ... -> ...`, for as many inputs as there are; linear in all."""
    dims = ", ".join(["..."] * len(specs))
    return decide(op, specs, f"{dims} -> ...", linear=(tuple(range(len(specs))),))


def _each_alone(op: Operation, specs: Sequence[Spec]) -> Decision:
    """Each output is what its input is."""
    del op
    return Decision(tuple(spec.placement for spec in specs), tuple(specs))


def _select(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """A condition for each entry, or for each row."""
    condition, one = specs[0].rank, specs[1].rank
    if condition == 1 and one is not None and one > 1:  # picks whole rows
        return decide(op, specs, "n, n ..., n ... -> n ...")
    return decide(op, specs, "..., ..., ... -> ...", linear=((1, 2),))


def _cast(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """From one floating type to another one it is linear, but for rounding. Sums of integers may wrap around."""
    is_linear = dividing.addends_stay and op.inputs[0].dtype.is_floating and op.outputs[0].dtype.is_floating
    return decide(op, specs, "... -> ...", linear=((0,),) if is_linear else ())


def _ensured(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """A shape that the script claims: of own rows, too, if it leaves their number open."""
    shard = specs[0].shard
    if shard is not None and (op.get_attr("shape").unknown_rank or op.get_attr("shape").dim[shard.dim].size != -1):
        return None
    return decide(op, specs, "... -> ...")


def _found(op: Operation, specs: Sequence[Spec]) -> str | None:
    """A value for each key; a table may also have several keys for a value, or several values for a key."""
    return ", ..., -> ..." if op.outputs[0].shape.rank == specs[1].rank else None


def _parsed(op: Operation, specs: Sequence[Spec]) -> str | None:
    """A row for each record, of features of fixed length; others are as long as the longest one of the batch."""
    defaults = specs[5:]  # behind records, their names, and the names of sparse, dense and ragged features
    sizes = [list(shape.dim) for shape in op.get_attr("dense_shapes")]
    if len(op.outputs) != len(defaults) or any(one.size < 0 for each in sizes for one in each):
        return None
    inputs = [" ".join(f"Z{axis}" for axis in range(spec.rank or 0)) for spec in defaults]
    outputs = [" ".join(["n", *(f"D{axis}" for axis in range(len(each)))]) for each in sizes]
    return f"{', '.join(['n', 'N', 'S', 'D', 'R', *inputs])} -> {', '.join(outputs)}"


_ONE, _TWO, _THREE = "... -> ...", "..., ... -> ...", "..., ..., ... -> ..."

_ROUNDED_ALONE: dict[str, Rule] = {
    **rules(
        """Abs AsString Bitcast Bucketize Ceil Floor Invert IsFinite IsInf IsNan LogicalNot RegexReplace RegexFullMatch
        StaticRegexReplace StaticRegexFullMatch Rint Round Sign Sqrt Square StringLength StringLower
        StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper""",
        MapOfFactors(_ONE),
    ),
    **rules(
        "Neg Identity Snapshot StopGradient PreventGradient CheckNumerics Conj Real Imag DeepCopy",
        MapOfFactors(_ONE, linear=((0,),)),
    ),
    **rules("ZerosLike OnesLike", _same_everywhere),
    **rules(
        """BitwiseAnd BitwiseOr BitwiseXor Complex Div Equal FloorDiv FloorMod Greater GreaterEqual LeftShift Less
        LessEqual LogicalAnd LogicalOr Maximum Minimum NotEqual RightShift SquaredDifference""",
        MapOfFactors(_TWO),
    ),
    **rules("Relu Relu6", MapOfFactors(_ONE, stays_filled=True)),
    **rules("ReluGrad Relu6Grad", MapOfFactors(_TWO, linear=((0,),))),
    **rules("Add AddV2", MapOfFactors(_TWO, linear=((0, 1),), stays_filled=True)),
    "Sub": MapOfFactors(_TWO, linear=((0, 1),)),
    "Mul": MapOfFactors(_TWO, linear=((0,), (1,)), stays_filled=True),
    **rules("RealDiv DivNoNan MulNoNan", MapOfFactors(_TWO, linear=((0,),))),
    "ClipByValue": MapOfFactors(_THREE),
    "SelectV2": MapOfFactors(_THREE, linear=((1, 2),)),
    "Select": _select,
    "AddN": _sum_of_many,
    "Cast": _cast,
    "IdentityN": _each_alone,
    "EnsureShape": _ensured,
    "LookupTableFindV2": MapOfFactors(_found),
    "ParseExampleV2": MapOfFactors(_parsed),
}

EXACT = frozenset(_ROUNDED_ALONE)
"""Types of operations whose numbers do not depend, bit for bit, on how many are worked on together."""

TABLE: dict[str, Rule] = {
    **_ROUNDED_ALONE,
    **rules(
        """Acos Acosh Angle Asin Asinh Atan Atanh BesselI0e BesselI1e ComplexAbs Cos Cosh Digamma Erf Erfc Erfinv
        Exp Expm1 Inv Lgamma Log Log1p Ndtri Reciprocal Rsqrt Selu Sin Sinh Softplus Softsign Tan""",
        MapOfFactors(_ONE),
    ),
    **rules("Elu LeakyRelu Sigmoid Tanh", MapOfFactors(_ONE, stays_filled=True)),
    **rules(
        """Atan2 Igamma Igammac Mod NextAfter Polygamma Pow TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta""",
        MapOfFactors(_TWO),
    ),
    # Gradients are linear in what comes from above: the first input, or, beside a result, the second one.
    **rules("EluGrad LeakyReluGrad SeluGrad SoftplusGrad SoftsignGrad", MapOfFactors(_TWO, linear=((0,),))),
    **rules("InvGrad ReciprocalGrad RsqrtGrad SigmoidGrad SqrtGrad TanhGrad", MapOfFactors(_TWO, linear=((1,),))),
    "Betainc": MapOfFactors(_THREE),
}
