"""Operations that compute each entry from the entries at the same place."""

from collections.abc import Sequence

from paceline.spmd.decisions import Decision, Operation
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


def _ensured(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """A shape that the script claims: of own rows, too, if it leaves their number open."""
    shard = specs[0].shard
    if shard is not None and (op.get_attr("shape").unknown_rank or op.get_attr("shape").dim[shard.dim].size != -1):
        return None
    return decide(op, specs, "... -> ...")


def _found(op: Operation, specs: Sequence[Spec]) -> str | None:
    """A value for each key; a table may also have several keys for a value, or several values for a key."""
    return ", ..., -> ..." if op.outputs[0].shape.rank == specs[1].rank else None


TABLE: dict[str, Rule] = {
    **rules(
        """Abs Acos Acosh Asin Asinh Atan Atanh AsString BesselI0e BesselI1e Bitcast Bucketize Ceil ComplexAbs Cos
        Cosh Digamma Elu Erf Erfc Erfinv Exp Expm1 Floor Inv Invert IsFinite IsInf IsNan LeakyRelu Lgamma
        Log Log1p LogicalNot Ndtri Reciprocal RegexReplace RegexFullMatch StaticRegexReplace StaticRegexFullMatch Relu
        Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square StringLength StringLower
        StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Tan
        Tanh Angle""",
        MapOfFactors(_text := "... -> ..."),
    ),
    **rules(
        "Neg Identity Snapshot StopGradient PreventGradient CheckNumerics Conj Real Imag DeepCopy",
        MapOfFactors(_text, linear=((0,),)),
    ),
    "Cast": MapOfFactors(_text),
    **rules("ZerosLike OnesLike", _same_everywhere),
    **rules(
        """Atan2 BitwiseAnd BitwiseOr BitwiseXor Complex Div Equal FloorDiv FloorMod Greater GreaterEqual
        Igamma Igammac LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mod NextAfter NotEqual Polygamma
        Pow RightShift SquaredDifference TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta EluGrad InvGrad LeakyReluGrad
        ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad TanhGrad""",
        MapOfFactors(_two := "..., ... -> ..."),
    ),
    **rules("Add AddV2 Sub", MapOfFactors(_two, linear=((0, 1),))),
    **rules("Mul", MapOfFactors(_two, linear=((0,), (1,)))),
    **rules("RealDiv DivNoNan MulNoNan", MapOfFactors(_two, linear=((0,),))),
    "ClipByValue": MapOfFactors("..., ..., ... -> ..."),
    "Betainc": MapOfFactors("..., ..., ... -> ..."),
    "SelectV2": MapOfFactors("..., ..., ... -> ...", linear=((1, 2),)),
    "Select": _select,
    "AddN": _sum_of_many,
    "IdentityN": _each_alone,
    "EnsureShape": _ensured,
    "LookupTableFindV2": MapOfFactors(_found),
}
