"""Tries out, on a small table, in which modes an optimizer's numbers are those of a variable in one piece.

An optimizer may leave rows alone that a sparse gradient does not name (SGD, Adagrad), or change them in every step
(momentum, Adam's averages, weight decay). It may treat each number by itself, or compute norms over a whole variable
(LAMB). No list of names says so: it depends on the settings, and users write optimizers. So a copy of the optimizer
takes a few steps in each mode.
"""

import json
import logging
import weakref
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.parameter_server.tables.outside_graph import outside_graph
from paceline.parameter_server.tables.sharded_weights import divide
from paceline.parameter_server.tables.table_updates import UpdateMode, forced

_LOGGER = logging.getLogger("paceline")

_ROWS, _COLUMNS = 5, 3
_SPARSE_STEPS = ([0, 2, 2], [2, 3], [0], [4, 0, 3])
"""The rows that the gradient of each step names. Row 1 never is, others are in some steps, one twice in a step."""

_TOLERANCE = 1e-12
"""In float64: rounding, and no weight decay however small."""

_found: "weakref.WeakKeyDictionary[Any, frozenset[UpdateMode]]" = weakref.WeakKeyDictionary()
_found_for: dict[str, frozenset[UpdateMode]] = {}


def exact_modes(optimizer: Any) -> frozenset[UpdateMode]:
    """The modes in which `optimizer` computes what it would for a variable in one piece; `WHOLE` is always one."""
    if optimizer not in _found:
        _found[optimizer] = outside_graph(lambda: _tried(optimizer))  # this may be called while a step is traced
    return _found[optimizer]


def _tried(optimizer: Any) -> frozenset[UpdateMode]:
    class_ = type(optimizer)
    try:
        config = optimizer.get_config()
        key = f"{class_.__module__}.{class_.__qualname__} {json.dumps(config, sort_keys=True, default=repr)}"
    except Exception as fault:  # whatever a user's optimizer raises: one that cannot be copied cannot be tried
        _LOGGER.debug("%s cannot be tried: %r", class_.__name__, fault)
        return frozenset({UpdateMode.WHOLE})
    if key not in _found_for:
        _found_for[key] = _compared(class_, config)
    return _found_for[key]


def _compared(class_: Any, config: dict[str, Any]) -> frozenset[UpdateMode]:
    modes = {UpdateMode.WHOLE}
    candidates = [(UpdateMode.ROWS, False), (UpdateMode.SHARDS, True)]
    if config.get("gradient_accumulation_steps"):
        del candidates[0]  # what is applied names rows of earlier steps, too
    for mode, has_dense_step in candidates:
        try:
            expected = _trained(class_, config, None, has_dense_step=has_dense_step)
            if _are_equal(expected, _trained(class_, config, mode, has_dense_step=has_dense_step)):
                modes.add(mode)
        except Exception as fault:  # it keeps something that cannot be in parts, or takes no float64: not in this mode
            _LOGGER.debug("%s cannot update %s: %r", class_.__name__, mode.value, fault)
    return frozenset(modes)


def _trained(class_: Any, config: dict[str, Any], mode: UpdateMode | None, *, has_dense_step: bool) -> list[Any]:
    """All variables after a few steps."""
    random = np.random.default_rng(0)
    optimizer = class_.from_config(dict(config))
    value = random.normal(size=(_ROWS, _COLUMNS))
    table = keras.Variable(value, dtype="float64", name="table")
    bias = keras.Variable(random.normal(size=_COLUMNS), dtype="float64", name="bias")
    if mode is UpdateMode.SHARDS:
        divide(table, tf.constant(value), [None, None])
    optimizer.build([table, bias])
    gradients: list[Any] = [
        tf.IndexedSlices(
            tf.constant(random.normal(size=(len(ids), _COLUMNS))),
            tf.constant(ids, tf.int64),
            tf.constant([_ROWS, _COLUMNS], tf.int64),
        )
        for ids in _SPARSE_STEPS
    ]
    if has_dense_step:
        gradients.insert(2, tf.constant(random.normal(size=(_ROWS, _COLUMNS))))
    for gradient in gradients:
        bias_gradient = tf.constant(random.normal(size=_COLUMNS))
        if mode is None:
            optimizer.apply([gradient, bias_gradient], [table, bias])
        else:
            with forced(mode):
                optimizer.apply([gradient, bias_gradient], [table, bias])
    return [np.array(variable.numpy()) for variable in (table, bias, *optimizer.variables)]


def _are_equal(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    return len(expected) == len(found) and all(
        one.shape == other.shape and np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        for one, other in zip(expected, found, strict=True)
    )
