"""Which numbers of a step are this rank's *share* of a global one: adding the ranks' up gives the number of one worker.

Keras's losses are (`losses.py` scales them). Users add them up, halve them, hand them to a metric or return them, so
what is computed from shares alone, by steps that commute with a sum over ranks, is recognised as one, too:

    share ─ cast, negate, sum, scale by a constant ─► share     share + share, share - share ─► share
    sum over this rank's rows ─► share

Other numbers are a rank's own: means over its rows, which count as much as it has of the rows. A loss may add shares
and own numbers (a Keras loss, a penalty, a regulariser); its terms are told apart in the graph that computes it.
Eagerly there is none: there a number is a share if it was marked, or if any Keras loss has been computed in the step.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.strategy.replica_context import StepRows

_MARK = "_paceline_is_share"
_OWN = "_paceline_is_own"
_OF_SHARES = frozenset(
    {"Identity", "Cast", "Neg", "Squeeze", "Reshape", "Sum", "StopGradient", "PreventGradient", "CheckNumericsV2"}
    | {"CheckNumerics", "ExpandDims"}
)
_OF_SHARES_ALL = frozenset({"AddV2", "Add", "AddN", "Sub", "Pack"})
_SCALING = frozenset({"Mul", "RealDiv", "Div", "DivNoNan"})
_MOST_OPERATIONS = 200
_CLOSE = 1e-6
_DATA = frozenset({"IteratorGetNext", "Placeholder"})
_WITH_GRAPHS_INSIDE = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"})


def mark_as_share(value: Any) -> Any:
    """`value`, remembered to be a share."""
    if tf.is_tensor(value):
        setattr(value, _MARK, True)
    return value


def mark_as_own(value: Any) -> Any:
    """`value`, remembered to be a number of this rank's rows, although it was computed from a share."""
    if tf.is_tensor(value):
        setattr(value, _OWN, True)
    return value


def is_share(value: Any) -> bool:
    """Whether `value` is a share; in graphs also one computed from shares, eagerly only one that was marked."""
    return bool(_is_marked(value) or (tf.is_symbolic_tensor(value) and _is_from_shares(value, [_MOST_OPERATIONS])))


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a loss: it adds ``factor * value``."""

    value: Any
    factor: float
    is_share: bool


def terms(value: Any, rows: StepRows) -> list[Term]:
    """What the scalar `value` is the sum of: shares, and numbers of this rank's own rows.

    Args:
        value: Any shape if all of it is one term.
        rows: Of the step.
    """
    if not tf.is_symbolic_tensor(value):
        return [Term(value, 1.0, _is_marked(value) or (rows.loss_is_share and not hasattr(value, _OWN)))]
    return [*_terms(value, 1.0, rows)]


def share_of(value: Any, rows: StepRows) -> Any:
    """The share that the scalar `value` is, or that it is made here: a rank's own number counts as its rows do."""
    parts = terms(value, rows)
    if len(parts) == 1 and parts[0].is_share:
        return value
    return tf.add_n([part.value * weight_of(part, rows) if part.is_share else _counted(part, rows) for part in parts])


def weight_of(term: Term, rows: StepRows) -> Any:
    """What `term` is multiplied by in the share of the whole: scalar of its type."""
    factor = tf.constant(term.factor, term.value.dtype)
    return factor if term.is_share else factor * rows.share(term.value.dtype)


def _counted(term: Term, rows: StepRows) -> Any:
    # No NaN: a mean over no rows is not a number, and counts nothing.
    return tf.math.multiply_no_nan(term.value, weight_of(term, rows))


def _terms(value: Any, factor: float, rows: StepRows) -> Iterator[Term]:
    if is_share(value) or _is_sum_over_rows(value, rows):
        yield Term(value, factor, is_share=True)
        return
    sources = [*sources_of([value])]
    of_losses = any(map(_is_marked, sources)) or (
        rows.has_hidden_shares and any(tensor.op.type in _WITH_GRAPHS_INSIDE for tensor in sources)
    )
    if not of_losses and not any(_is_sum_over_rows(tensor, rows) for tensor in sources):
        yield Term(value, factor, is_share=False)
        return
    operation = value.op
    inputs = list(operation.inputs)
    if operation.type in ("Identity", "Neg", "StopGradient", "CheckNumerics", "CheckNumericsV2"):
        yield from _terms(inputs[0], -factor if operation.type == "Neg" else factor, rows)
    elif operation.type in ("AddV2", "Add", "AddN", "Sub") and all(part.shape == value.shape for part in inputs):
        for index, part in enumerate(inputs):
            yield from _terms(part, -factor if operation.type == "Sub" and index else factor, rows)
    elif operation.type in ("Sum", "Mean") and inputs[0].op.type == "Pack" and value.shape.rank == 0:
        packed = list(inputs[0].op.inputs)
        for part in packed:
            yield from _terms(part, factor / len(packed) if operation.type == "Mean" else factor, rows)
    elif operation.type in _SCALING and (scaling := _scaling(value)) and not _divides_by_rows(*scaling, rows):
        yield from _terms(scaling[0], factor * scaling[1], rows)
    else:  # More than a sum has been made of them. A sum over rows that is divided by how many there are is a mean.
        yield Term(value, factor, is_share=of_losses)


def sources_of(values: Iterable[Any]) -> Iterator[Any]:
    """`values` of a graph and all tensors that they are computed from, also those outside of it, each once."""
    seen: dict[int, Any] = {}
    left = [*values]
    while left:
        tensor = left.pop()
        if id(tensor) in seen:
            continue
        seen[id(tensor)] = tensor
        yield tensor
        if hasattr(tensor, _OWN):
            continue
        left += tensor.op.inputs
        if tensor.op.type == "Placeholder":
            captures = getattr(tensor.graph, "captures", ())
            left += [outer for outer, inner in captures if inner is tensor and tf.is_symbolic_tensor(outer)]


def _is_sum_over_rows(value: Any, rows: StepRows) -> bool:
    """Whether `value` is one number, all that it adds up being of this rank's rows."""
    if value.op.type != "Sum" or value.shape.rank != 0:
        return False
    added = value.op.inputs[0]
    if not added.shape.rank or not rows.known or added.shape[0] not in (None, tf.get_static_value(rows.local)):
        return False
    return any(
        tensor.op.type in _DATA and tensor.dtype not in (tf.resource, tf.variant) for tensor in sources_of([added])
    )


def _scaling(value: Any) -> tuple[Any, float] | None:
    """What `value` is a multiple of, and how many times; None: that is no number known here."""
    one, other = value.op.inputs
    by = tf.get_static_value(other)
    if by is None and value.op.type == "Mul":
        one, by = other, tf.get_static_value(one)
    if by is None or by.ndim or one.shape.rank != 0:
        return None
    return one, float(by) if value.op.type == "Mul" else float(1.0 / by)


def _divides_by_rows(value: Any, factor: float, rows: StepRows) -> bool:
    """Whether a sum over rows whose number is known when the step is built is made a mean over them."""
    num_rows = tf.get_static_value(rows.local)
    if num_rows is None or not _is_sum_over_rows(value, rows):
        return False
    added = value.op.inputs[0].shape
    lengths = {int(num_rows)} | ({added.num_elements()} if added.is_fully_defined() else set())
    return any(abs(factor * length - 1.0) < _CLOSE for length in lengths)


def _is_marked(value: Any) -> bool:
    return bool(getattr(value, _MARK, False))


def _is_from_shares(tensor: Any, left: list[int]) -> bool:
    if _is_marked(tensor):
        return True
    left[0] -= 1
    if left[0] < 0 or hasattr(tensor, _OWN):
        return False
    operation = tensor.op
    if operation.type in _OF_SHARES:
        return _is_from_shares(operation.inputs[0], left)
    if operation.type == "IdentityN":
        return _is_from_shares(operation.inputs[tensor.value_index], left)
    if operation.type == "ConcatV2":
        return all(_is_from_shares(part, left) for part in list(operation.inputs)[:-1])
    if operation.type in _OF_SHARES_ALL:
        return all(_is_from_shares(part, left) or _is_zero(part) for part in operation.inputs)
    if operation.type == "Mean" and operation.inputs[0].shape.is_fully_defined():
        return _is_from_shares(operation.inputs[0], left)
    if operation.type in _SCALING:
        value, factor = operation.inputs
        if operation.type == "Mul" and _is_constant(value):
            value, factor = factor, value
        return _is_constant(factor) and _is_from_shares(value, left)
    return False


def _is_constant(tensor: Any) -> bool:
    while tensor.op.type in ("Identity", "Cast"):
        tensor = tensor.op.inputs[0]
    return bool(tensor.op.type in ("Const", "ReadVariableOp"))


def _is_zero(tensor: Any) -> bool:
    value = tf.get_static_value(tensor)
    return value is not None and not value.any()
