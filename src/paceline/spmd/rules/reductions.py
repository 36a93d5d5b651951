"""Operations over some dimensions: sums, means, maxima, soft-maxes, running sums, sorting."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paceline.spmd.decisions import Decision, Operation, Rebuilt
from paceline.spmd.factors import decide
from paceline.spmd.placements import Partial, Spec
from paceline.spmd.rules.rule import MapOfFactors, Rule, letters, rules
from paceline.spmd.sizes import ONE, Size


def _axes(specs: Sequence[Spec]) -> list[int] | None:
    """The axes that the second input names, from the front."""
    rank, axes = specs[0].rank, specs[1].numbers()
    if rank is None or axes is None:
        return None
    return sorted({axis % rank for axis in axes})


def _reduction(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """A sum over rows leaves addends, and so does a mean, of which each is divided by the number of all rows.

    A maximum over rows, and all else, needs all rows.
    """
    axes = _axes(specs)
    if axes is None or specs[0].dims is None:
        return None
    # A mean of integers is rounded, so it is no sum of means.
    sums = op.type == "Sum" or (op.type == "Mean" and not op.inputs[0].dtype.is_integer)
    factors = letters(len(specs[0].dims))
    inputs = [factor if sums or axis not in axes else factor.upper() for axis, factor in enumerate(factors)]
    kept = ["1" if axis in axes else factor for axis, factor in enumerate(factors)]
    outputs = kept if op.get_attr("keep_dims") else [factor for axis, factor in enumerate(factors) if axis not in axes]
    where = " Z" if specs[1].rank else ""
    if isinstance(specs[0].placement, Partial):
        return _of_addends(op, specs, outputs) if sums else None
    decision = decide(op, specs, f"{' '.join(inputs)},{where} -> {' '.join(outputs)}")
    if decision is None:
        return None
    content = specs[1].content
    assert content is not None
    needs = (decision.needs[0], Rebuilt(content))
    if op.type == "Mean" and isinstance(decision.outputs[0].placement, Partial):
        count = ONE
        for axis in axes:
            count = count * specs[0].dims[axis]
        return Decision(needs, decision.outputs, _mean_of_all(count))
    return replace(decision, needs=needs)


def _of_addends(op: Operation, specs: Sequence[Spec], outputs: list[str]) -> Decision | None:
    """Sums and means of addends are addends of the sum or mean, and shorter than they were."""
    whole = [spec.placed(spec.placement if index else _R) for index, spec in enumerate(specs)]
    decision = decide(
        op, whole, f"{' '.join(letters(specs[0].rank or 0))},{' Z' if specs[1].rank else ''} -> {' '.join(outputs)}"
    )
    if decision is None or specs[1].content is None:
        return None
    return Decision((specs[0].placement, Rebuilt(specs[1].content)), (decision.outputs[0].placed(specs[0].placement),))


def _mean_of_all(count: Size) -> Any:
    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        return [builder.mean(op, inputs, count)]

    return build


def _norm(op: Operation, specs: Sequence[Spec]) -> str | None:
    """Half the sum of the squares of all entries."""
    del op
    rank = specs[0].rank
    return None if rank is None else f"{' '.join(letters(rank))} -> "


def _along_one_axis(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Along one axis, which must be whole."""
    axes = _axes(specs)
    if axes is None or len(axes) != 1 or specs[0].rank is None:
        return None
    factors = letters(specs[0].rank)
    factors[axes[0]] = factors[axes[0]].upper()
    outputs = [factor for axis, factor in enumerate(factors) if axis != axes[0] or not op.type.startswith("Arg")]
    where = " Z" if specs[1].rank else ""
    linear = ((0,),) if op.type == "Cumsum" else ()
    return decide(op, specs, f"{' '.join(factors)},{where} -> {' '.join(outputs)}", linear=linear)


_R = Spec().placement

TABLE: dict[str, Rule] = {
    **rules("Sum Mean Max Min Prod All Any EuclideanNorm", _reduction),
    "L2Loss": MapOfFactors(_norm),
    **rules("Softmax LogSoftmax", MapOfFactors("... C -> ... C")),
    "SparseSoftmaxCrossEntropyWithLogits": MapOfFactors("n C, n -> n, n C"),
    "SoftmaxCrossEntropyWithLogits": MapOfFactors("... C, ... C -> ..., ... C"),
    **rules("Cumsum Cumprod CumulativeLogsumexp ArgMax ArgMin", _along_one_axis),
    "TopKV2": MapOfFactors("... C, -> ... K, ... K"),
    "InTopKV2": MapOfFactors("n C, n, -> n"),
    "NthElement": MapOfFactors("... C, -> ..."),
    **rules(
        "Cholesky MatrixInverse MatrixLogarithm MatrixSquareRoot FFT2D IFFT2D",
        MapOfFactors("... M N -> ... M N"),
    ),
    **rules("RFFT IRFFT", MapOfFactors("... N, Z -> ... M")),
    **rules("FFT IFFT", MapOfFactors("... N -> ... N", linear=((0,),))),
    "MatrixDeterminant": MapOfFactors("... M N -> ..."),
    "MatrixDiagPart": MapOfFactors("... M N -> ... D"),
    "MatrixDiag": MapOfFactors("... M -> ... M N"),
    "MatrixBandPart": MapOfFactors("... M N, , -> ... M N", linear=((0,),)),
    "MatrixSolve": MapOfFactors("... M N, ... N K -> ... M K", linear=((1,),)),
    "MatrixTriangularSolve": MapOfFactors("... M N, ... N K -> ... M K", linear=((1,),)),
}
