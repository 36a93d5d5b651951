"""What `tf.GradientTape` gives in a trainer's step: gradients of the global loss.

Keras's own step hands them to the optimizer, which sums them over ranks (`gradients.py`). In a `train_step` of a user's
they are summed here: what the step then does with them (clips them by their norm, logs it, adds noise, moves the
weights along them) it does with the gradients of the global batch.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from paceline.fit.gradients import none_without_rows, summed_over_ranks, values_of
from paceline.fit.lineage import IS_GLOBAL, OF_TAPE
from paceline.fit.replica import current_batch_replica
from paceline.fit.shares import as_tensor, mark_as_own, mark_as_share, terms, weight_of
from paceline.strategy.replica_context import StepRows

Function = Callable[..., Any]

_thread = threading.local()


def taken(tape_gradient: Function) -> Function:
    """`tf.GradientTape.gradient`, which in a trainer's step takes gradients of shares of the global loss.

    A target may add Keras losses, which are shares, and numbers of this rank's rows: each term gets its weight here
    (`shares.py`). One loss per row is a share as it is: a tape adds the rows of its target up.

    In a step of a user's, gradients of variables are then summed over ranks, except those of one loss per row: such a
    step may divide them by its rows, which are this rank's. Collective. In loops and branches within the step, where
    ranks may go ways of their own or take one row after the other, they stay as they are.
    """

    def gradient(self: Any, target: Any, sources: Any, output_gradients: Any = None, **options: Any) -> Any:
        replica = current_batch_replica()
        is_inner = getattr(_thread, "takes", False)  # TensorFlow's own, of what it computes again (`recompute_grad`)
        if replica is None or is_inner or not replica.rows.of_trainer or not replica.rows.is_here:
            return tape_gradient(self, target, sources, output_gradients, **options)
        rows = replica.rows
        targets = tf.nest.flatten(target)
        given = [None] * len(targets) if output_gradients is None else tf.nest.flatten(output_gradients)
        parts = list(_parts(targets, given, rows))
        upstreams = None
        if any(upstream is not None for _, upstream in parts):
            upstreams = [tf.ones_like(value) if upstream is None else upstream for value, upstream in parts]
        _thread.takes = True
        try:
            gradients = tape_gradient(self, [value for value, _ in parts], sources, upstreams, **options)
        finally:
            _thread.takes = False
        leaves = tf.nest.flatten(gradients)
        of_variables = [
            index
            for index, source in enumerate(tf.nest.flatten(sources))
            if isinstance(source, (keras.Variable, tf.Variable)) and leaves[index] is not None
        ]
        found = [leaves[index] for index in of_variables]
        is_global = bool(found) and not rows.in_keras_step and not any(_has_rows(value, rows) for value, _ in parts)
        if is_global:
            found = summed_over_ranks(none_without_rows(found, rows), replica.summed, replica)
            rows.gradients_are_global = True
        if found:
            rows.latest_gradients_are_global = is_global
        for index, value in zip(of_variables, found, strict=True):
            leaves[index] = value
            values = values_of(value)
            setattr(values, IS_GLOBAL if is_global else OF_TAPE, True)
            # What is computed from a global one is the same number on all ranks.
            (mark_as_own if is_global else mark_as_share)(values)
        return tf.nest.pack_sequence_as(gradients, leaves)

    return gradient


def _parts(targets: list[Any], upstreams: list[Any], rows: StepRows) -> Iterator[tuple[Any, Any]]:
    """What a tape should take gradients of, each with what they are multiplied by; None: one."""
    for target, upstream in zip(targets, upstreams, strict=True):
        target = as_tensor(target)
        if not tf.is_tensor(target) or not target.dtype.is_floating or _has_rows(target, rows):
            yield target, upstream
        elif target.shape.rank == 1 and tf.is_symbolic_tensor(target):
            each = [None] * len(target.op.inputs) if upstream is None else tf.unstack(upstream)
            yield from _parts(list(target.op.inputs), each, rows)
        else:
            found = terms(target, rows)
            for term in [term for term in found if not term.is_stopped] or found:
                if term.is_share and term.value is target:
                    yield target, upstream
                    continue
                weight = weight_of(term, rows)
                yield term.value, weight * (tf.ones_like(term.value) if upstream is None else upstream)


def _has_rows(target: Any, rows: StepRows) -> bool:
    """Whether `target` holds a number per row, or several, or of something else than rows, and no loss.

    One that stacks a few losses is those.
    """
    if not tf.is_tensor(target) or not target.shape.rank:
        return False
    if tf.is_symbolic_tensor(target):
        return not (target.op.type == "Pack" and all(part.shape.rank == 0 for part in target.op.inputs))
    num_rows = max(1, int(rows.local))
    return bool(target.shape.rank > 1 or target.shape[0] % num_rows == 0)
