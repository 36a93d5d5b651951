"""Where in an input pipeline a rank's rows can be chosen: a walk over the stages of a dataset. Nothing is read.

    source ─► shuffle ─► map f ─► repeat ─► map g ─► batch ─► take ─► map h ─► prefetch
    └──── base ──────┘   └ f and g work row by row ┘        │
                                                            └ order of batches; h has a row for each row

An order does not depend on values. So base, repeat, batch and take, without the maps, say which rows of the base are
the rows of a global batch; a rank then needs f, g and h for its own rows only (`own_rows.py`). Whatever is not
understood here stays as it is, on all rows. A shuffle behind a map is made again over the rows before the
map: both draw their seeds from one generator, in this `fit` and outside.
"""

from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.fingerprint import draws_by_chance
from paceline.data.own_rows.division import Whole
from paceline.data.own_rows.orders import in_order_of, is_order
from paceline.data.own_rows.own_rows import Division, ReadAhead, RowMap
from paceline.data.own_rows.row_wise import is_row_wise
from paceline.data.own_rows.staying_maps import (
    BATCHES,
    MAPS,
    computes,
    maps_kept_by,
    name_of_map,
    reason_of_state,
    reason_to_stay,
    stays_before,
)

_LOOKED_THROUGH = frozenset(["Options", "CopyToDevice"])
"""Stages that change no element: `fit` puts batches where they are needed by itself."""


def division_of(dataset: Any) -> Division | Whole:
    """How the work of a `tf.data.Dataset` of global batches can be divided."""
    order, steps, one = [], [], dataset
    while (kind := compat.kind_of(one)) not in BATCHES:
        if is_order(one):
            order.append(one)
        elif kind == "Prefetch" or (kind in MAPS and is_row_wise(one)):
            steps.append(one)
        elif kind not in _LOOKED_THROUGH:
            return Whole(_behind_batch(one) or maps_kept_by(one))
        [one] = compat.inputs_of(one)
    batch = one
    [behind] = compat.inputs_of(batch)
    if compat.options_of_batch(batch) is None or not _is_dense(batch.element_spec):
        return Whole(stays_before(behind, "as its rows are ragged or sparse: dense ones would be divided"))
    found = _Found()
    rows, row_steps = _lowered(behind, 0, found)
    if draws_by_chance(rows):  # ranks draw other numbers, which only whole batches tell from other rows
        return Whole(found.stays)
    batch_steps = tuple(reversed(steps))
    if not any(isinstance(step, RowMap) and computes(step.dataset) for step in row_steps):
        if not any(compat.kind_of(one) in MAPS for one in batch_steps):
            return Whole(found.stays)
        rows, row_steps = None, []
    return Division(rows, batch, tuple(row_steps), tuple(reversed(order)), batch_steps, found.stays)


@dataclass(slots=True)
class _Found:
    """What has been found on the way."""

    reasons: list[str] = field(default_factory=list)

    @property
    def stays(self) -> str:
        return self.reasons[0] if self.reasons else ""


def _lowered(one: Any, first: int, found: _Found) -> tuple[Any, list[RowMap | ReadAhead]]:
    """`one` without the maps that can come later, and these maps; as it is, and none, where that cannot be.

    Args:
        one: A dataset of rows.
        first: Where its tensors begin among those of a row.
        found: Is told what stays.
    """
    kind = compat.kind_of(one)
    if kind in MAPS:
        if reason := reason_to_stay(one) or reason_of_state(one):
            found.reasons.append(f"map `{name_of_map(one)}` runs on all rows on every rank, {reason}")
            return one, []
        [source] = compat.inputs_of(one)
        rows, steps = _lowered(source, first, found)
        if steps or _has_fixed_shapes(source.element_spec):
            return rows, [*steps, RowMap(one, first)]
        reason = "as the rows before it have no fixed shape: tf.ensure_shape before it would give them one"
        found.reasons += [reason_of] if (reason_of := stays_before(one, reason)) else []
        return one, []
    # A prefetch of nothing: TensorFlow 2.17 leaves it out, and joins what is around it; 2.21 does not.
    is_ahead = kind == "Prefetch" and compat.read_ahead_of(one) != 0
    if is_order(one) or is_ahead or kind in _LOOKED_THROUGH:
        [source] = compat.inputs_of(one)
        rows, steps = _lowered(source, first, found)
        if not any(isinstance(step, RowMap) for step in steps):
            return one, []
        if is_ahead:
            return rows, [*steps, ReadAhead(compat.read_ahead_of(one))]
        return (rows if kind in _LOOKED_THROUGH else in_order_of(one, rows)), steps
    if kind == "Zip":
        return _lowered_zip(one, first, found)
    if told := maps_kept_by(one):
        found.reasons.append(told)
    return one, []


def _lowered_zip(one: Any, first: int, found: _Found) -> tuple[Any, list[RowMap | ReadAhead]]:
    branches = []
    for branch in compat.inputs_of(one):
        branches.append(_lowered(branch, first, found))
        first += compat.num_tensors_of(branch.element_spec)
    steps = [step for _, of_branch in branches for step in of_branch]
    fixed = all(_has_fixed_shapes(rows.element_spec) for rows, _ in branches)
    if not (fixed and any(isinstance(step, RowMap) for step in steps)):
        return one, []
    return tf.data.Dataset.zip(tf.nest.pack_sequence_as(compat.zipped_of(one), [rows for rows, _ in branches])), steps


def _behind_batch(one: Any) -> str:
    kinds = {compat.kind_of(stage) for stage in compat.with_sources(one)}
    if compat.kind_of(one) not in MAPS or not kinds & BATCHES:
        return ""
    name = name_of_map(one)
    told = f"everything before map `{name}` runs on all rows on every rank, as `{name}` takes whole batches"
    if reason := reason_to_stay(one):
        return f"{told}; before .batch() it would run on all rows, too, {reason}"
    return f"{told}: before .batch(), it would work on the rows of this rank"


def _is_dense(spec: Any) -> bool:
    return all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank is not None for leaf in tf.nest.flatten(spec))


def _has_fixed_shapes(spec: Any) -> bool:
    """Whether rows of this spec can be put one below the other, whatever they hold, and taken apart again."""
    leaves = tf.nest.flatten(spec)
    return bool(leaves) and all(
        # `Dataset.unbatch` ends the process at rows of no numbers (TensorFlow 2.21).
        isinstance(leaf, tf.TensorSpec) and bool(leaf.shape.num_elements()) and leaf.dtype not in _NO_ROWS
        for leaf in leaves
    )


_NO_ROWS = (tf.variant, tf.resource)
