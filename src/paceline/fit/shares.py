"""Which numbers of a step are this rank's *share* of a global one: adding the ranks' up gives the number of one worker.

Keras's losses are (`losses.py` scales them). Users add them up, halve them, hand them to a metric or return them, so
what is computed from shares alone, by steps that commute with a sum over ranks, is recognised as one, too:

    share ─ cast, negate, sum, scale by a constant ─► share     share + share, share - share ─► share
"""

from typing import Any

import tensorflow as tf

_MARK = "_paceline_is_share"
_OF_SHARES = frozenset({"Identity", "Cast", "Neg", "Squeeze", "Reshape", "Sum", "StopGradient", "PreventGradient"})
_OF_SHARES_ALL = frozenset({"AddV2", "Add", "AddN", "Sub"})
_SCALING = frozenset({"Mul", "RealDiv", "Div", "DivNoNan"})
_MOST_OPERATIONS = 200


def mark_as_share(value: Any) -> Any:
    """`value`, remembered to be a share."""
    if tf.is_tensor(value):
        setattr(value, _MARK, True)
    return value


def is_share(value: Any) -> bool:
    """Whether `value` is a share; in graphs also one computed from shares, eagerly only one that was marked."""
    return bool(_is_marked(value) or (tf.is_symbolic_tensor(value) and _is_from_shares(value, [_MOST_OPERATIONS])))


def _is_marked(value: Any) -> bool:
    return bool(getattr(value, _MARK, False))


def _is_from_shares(tensor: Any, left: list[int]) -> bool:
    if _is_marked(tensor):
        return True
    left[0] -= 1
    if left[0] < 0:
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
