"""Which numbers of a step are this rank's *share* of a global number: the sum over ranks is the number of one worker.

Keras's losses are (`losses.py` scales them). Users add them up, halve them, hand them to a metric or return them, so
what is computed from shares alone, by steps that commute with a sum over ranks, is recognised as one, too:

    share ─ cast, negate, sum, scale by a constant ─► share     share + share, share - share ─► share
    sum over this rank's rows ─► share

Other numbers are a rank's own: means over its rows, which count as much as it has of the rows. A loss may add shares
and own numbers (a Keras loss, a penalty, a regulariser); its terms are told apart in the graph that computes it.
Eagerly there is none: there a number is a share if it was marked, or if any Keras loss has been computed in the step.
"""

from dataclasses import dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from paceline.fit.replica_loops.lineage import From, Mark, is_constant, is_marked, lineage_of, mark
from paceline.strategy.replica_context import StepRows

_OF_SHARES = frozenset(
    {"Identity", "Cast", "Neg", "Squeeze", "Reshape", "Sum", "StopGradient", "PreventGradient", "CheckNumericsV2"}
    | {"CheckNumerics", "ExpandDims"}
)
_OF_SHARES_ALL = frozenset({"AddV2", "Add", "AddN", "Sub", "Pack"})
_SCALING = frozenset({"Mul", "RealDiv", "Div", "DivNoNan"})
_MOST_OPERATIONS = 200


def mark_as_share(value: Any) -> Any:
    """`value`, remembered to be a share."""
    if tf.is_tensor(value):
        mark(value, Mark.SHARE)
    return value


def mark_as_own(value: Any) -> Any:
    """`value`, remembered to be a number of this rank's rows, although it was computed from a share."""
    if tf.is_tensor(value):
        mark(value, Mark.OWN)
    return value


def is_share(value: Any) -> bool:
    """Whether `value` is a share; in graphs also one computed from shares, eagerly only one that was marked."""
    if not tf.is_symbolic_tensor(value):
        return is_marked(value, Mark.SHARE)
    return _is_of_shares(value, [_MOST_OPERATIONS])


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a loss: it adds ``factor * value``."""

    value: Any
    factor: float = 1.0
    is_share: bool = False
    is_stopped: bool = False
    """Whether no gradient flows through it."""


def as_tensor(value: Any) -> Any:
    """`value`; what a variable holds."""
    return tf.convert_to_tensor(value) if isinstance(value, (keras.Variable, tf.Variable)) else value


def terms(value: Any, rows: StepRows) -> list[Term]:
    """What the scalar `value` is the sum of: shares, and numbers of this rank's own rows.

    Args:
        value: Tensor; any shape if all of it is one term.
        rows: Of the step.
    """
    if not tf.is_symbolic_tensor(value):
        in_step = tf.executing_eagerly() and rows.loss_is_share and not is_marked(value, Mark.OWN)
        return [Term(value, is_share=is_marked(value, Mark.SHARE) or in_step)]
    lineage = lineage_of(rows)
    found = []
    left = [Term(value)]
    while left:
        one = left.pop()
        behind = lineage.of(one.value)
        of_losses = From.SHARE in behind or (rows.has_hidden_shares and From.LOOP_OR_BRANCH in behind)
        if is_share(one.value) or lineage.is_sum_over_rows(one.value):
            found.append(replace(one, is_share=True))
        elif not of_losses and From.SUM_OVER_ROWS not in behind:
            found.append(one)
        elif parts := _parts(one):
            left += reversed(parts)
        else:  # More than a sum has been made of them. A sum over rows that is divided by how many there are is a mean.
            found.append(replace(one, is_share=of_losses))
    return found


def share_of(value: Any, rows: StepRows) -> Any:
    """The share that the scalar `value` is, or that it is made here: a rank's own number counts as its rows do."""
    parts = terms(value, rows)
    if len(parts) == 1 and parts[0].is_share:
        return value
    # No NaN: a mean over no rows is not a number, and counts nothing.
    return mark_as_share(
        tf.add_n(
            [
                (tf.multiply if part.is_share else tf.math.multiply_no_nan)(
                    tf.stop_gradient(part.value) if part.is_stopped else part.value, weight_of(part, rows)
                )
                for part in parts
            ]
        )
    )


def weight_of(term: Term, rows: StepRows) -> Any:
    """What `term` is multiplied by in the share of the whole: scalar of its type."""
    factor = tf.constant(term.factor, term.value.dtype)
    return factor if term.is_share else factor * rows.share(term.value.dtype)


def _parts(term: Term) -> list[Term]:
    """What `term` is a sum of, if it is one."""
    operation = term.value.op
    inputs = list(operation.inputs)
    match operation.type:
        case "Identity" | "CheckNumerics" | "CheckNumericsV2":
            return [replace(term, value=inputs[0])]
        case "StopGradient":
            return [replace(term, value=inputs[0], is_stopped=True)]
        case "Neg":
            return [replace(term, value=inputs[0], factor=-term.factor)]
        case "AddV2" | "Add" | "AddN" if all(part.shape == term.value.shape for part in inputs):
            return [replace(term, value=part) for part in inputs]
        case "Sub" if all(part.shape == term.value.shape for part in inputs):
            return [replace(term, value=inputs[0]), replace(term, value=inputs[1], factor=-term.factor)]
        case "Sum" | "Mean" if inputs[0].op.type == "Pack" and term.value.shape.rank == 0:
            packed = list(inputs[0].op.inputs)
            factor = term.factor / len(packed) if operation.type == "Mean" else term.factor
            return [replace(term, value=part, factor=factor) for part in packed]
        case kind if kind in _SCALING:
            return _scaled(term)
    return []


def _scaled(term: Term) -> list[Term]:
    """What `term` is a multiple of, where the number is known here."""
    operation = term.value.op
    one, other = operation.inputs
    by = tf.get_static_value(other)
    if by is None and operation.type == "Mul":
        one, by = other, tf.get_static_value(one)
    if by is None or by.ndim or one.shape.rank != 0:
        return []
    factor = float(by) if operation.type == "Mul" else float(1.0 / by)
    return [replace(term, value=one, factor=term.factor * factor)]


def _is_of_shares(tensor: Any, left: list[int]) -> bool:
    if is_marked(tensor, Mark.SHARE):
        return True
    left[0] -= 1
    if left[0] < 0 or is_marked(tensor, Mark.OWN):
        return False
    operation = tensor.op
    if operation.type in _OF_SHARES:
        return _is_of_shares(operation.inputs[0], left)
    if operation.type == "IdentityN":
        return _is_of_shares(operation.inputs[tensor.value_index], left)
    if operation.type == "ConcatV2":
        return all(_is_of_shares(part, left) for part in list(operation.inputs)[:-1])
    if operation.type in _OF_SHARES_ALL:
        return all(_is_of_shares(part, left) or _is_zero(part) for part in operation.inputs)
    if operation.type == "Mean" and operation.inputs[0].shape.is_fully_defined():
        return _is_of_shares(operation.inputs[0], left)
    if operation.type in _SCALING:
        value, factor = operation.inputs
        if operation.type == "Mul" and is_constant(value):
            value, factor = factor, value
        return is_constant(factor) and _is_of_shares(value, left)
    return False


def _is_zero(tensor: Any) -> bool:
    value = tf.get_static_value(tensor)
    return value is not None and not value.any()
