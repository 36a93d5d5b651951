"""Gradients of `tf.GradientTape` in a trainer's step: those of the global loss.

Keras's own step hands them to the optimizer, which sums them over ranks (`gradients.py`). In a `train_step` of a user's
they are summed here: what the step then does with them (clips them by their norm, logs it, adds noise, moves the
weights along them) it does with the gradients of the global batch.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from paceline.fit.gradients import none_without_rows, summed_over_ranks, values_of
from paceline.fit.lineage import IS_GLOBAL, OF_TAPE
from paceline.fit.replica import current_batch_replica, note_gradients
from paceline.fit.shares import mark_as_own, mark_as_share, terms, weight_of
from paceline.strategy.replica_context import StepRows

Function = Callable[..., Any]


class _Thread(threading.local):
    is_inner = False
    """Whether TensorFlow takes gradients for a tape, of what it computes again (`recompute_grad`)."""
    is_apart = False
    """Whether gradients are taken of one number or one row after the other."""

    @contextlib.contextmanager
    def flagged(self, name: str) -> Iterator[None]:
        """While this lasts, the flag `name` is set."""
        before = getattr(self, name)
        setattr(self, name, True)
        try:
            yield
        finally:
            setattr(self, name, before)


_thread = _Thread()


def taken(tape_gradient: Function) -> Function:
    """`tf.GradientTape.gradient`, which in a trainer's step takes gradients of shares of the global loss.

    A target may add Keras losses, which are shares, and numbers of this rank's rows: each term gets its weight here
    (`shares.py`). One loss per row is a share as it is: a tape adds the rows of its target up.

    In a step of a user's, gradients of variables are then summed over ranks, except those of one loss per row: such a
    step may divide them by its rows, which are this rank's. Collective. In loops and branches within the step, where
    ranks may go ways of their own or take one row after the other, they stay as they are.
    """

    def gradient(
        self: Any,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        replica = current_batch_replica()
        if replica is None or _thread.is_inner or not replica.rows.is_training:
            gradients = tape_gradient(self, target, sources, output_gradients, unconnected_gradients)
            if not _thread.is_inner:
                note_gradients(sources, gradients)
            return gradients
        rows, targets = replica.rows, tf.nest.flatten(target)
        is_variable = [isinstance(source, (keras.Variable, tf.Variable)) for source in tf.nest.flatten(sources)]
        is_of_the_model = not any(is_variable) and _is_of_the_model(targets, rows)
        if _thread.is_apart or is_of_the_model or not rows.is_here:
            rows.gradients_are_local |= any(is_variable) and not rows.in_keras_step
            return tape_gradient(self, target, sources, output_gradients, unconnected_gradients)
        given = [None] * len(targets) if output_gradients is None else tf.nest.flatten(output_gradients)
        parts = list(_parts(targets, given, rows))
        upstreams = None
        if any(upstream is not None for _, upstream in parts):
            upstreams = [tf.ones_like(value) if upstream is None else upstream for value, upstream in parts]
        with _thread.flagged("is_inner"):
            gradients = tape_gradient(self, [value for value, _ in parts], sources, upstreams, unconnected_gradients)
        leaves = tf.nest.flatten(gradients)
        found = [index for index, leaf in enumerate(leaves) if leaf is not None]
        of_variables = [index for index in found if is_variable[index]]
        is_global = bool(of_variables) and not rows.in_keras_step
        is_global = is_global and not any(_has_rows(value) for value, _ in parts)
        if is_global:
            own = none_without_rows([leaves[index] for index in of_variables], rows)
            for index, total in zip(of_variables, summed_over_ranks(own, replica.summed, replica), strict=True):
                leaves[index] = total
        rows.gradients_are_global |= is_global
        rows.gradients_are_local |= not is_global and not rows.in_keras_step
        for index in found:
            _mark(leaves[index], is_global=is_global and is_variable[index], is_share=is_variable[index])
        return tf.nest.pack_sequence_as(gradients, leaves)

    return gradient


def taken_in_graph(tensorflow_gradients: Function) -> Function:
    """`tf.gradients`, which needs no tape."""

    def gradients(
        ys: Any,
        xs: Any,
        grad_ys: Any = None,
        name: str = "gradients",
        gate_gradients: bool = False,
        aggregation_method: Any = None,
        stop_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        def of(_: None, target: Any, sources: Any, upstreams: Any, unconnected: Any) -> Any:
            options = (name, gate_gradients, aggregation_method, stop_gradients, unconnected)
            return tensorflow_gradients(target, sources, upstreams, *options)

        return taken(of)(None, ys, xs, grad_ys, unconnected_gradients)

    return gradients


def _mark(gradient: Any, *, is_global: bool, is_share: bool) -> None:
    """What a tape has given. What is computed from a global gradient is the same number on all ranks."""
    values = values_of(gradient)
    for part in tf.nest.flatten(gradient, expand_composites=True) if is_global else [values]:
        setattr(part, IS_GLOBAL if is_global else OF_TAPE, True)  # of a sparse one all, for its dense form's sake
    if is_global:
        mark_as_own(values)
    elif is_share:
        mark_as_share(values)


def taken_apart(tensorflow_map: Function) -> Function:
    """`GradientTape.jacobian` and the like, which take gradients of one number after the other: they stay a rank's."""

    def mapped(*args: Any, **kwargs: Any) -> Any:
        with _thread.flagged("is_apart"):
            return tensorflow_map(*args, **kwargs)

    return mapped


def _is_of_the_model(targets: list[Any], rows: StepRows) -> bool:
    """Whether gradients of tensors belong to what the model computes (forces, slopes), and not to a loss's path.

    In Keras's own step they do; eagerly, and where the target is a sum, they are taken to.
    """
    if rows.in_keras_step:
        return True
    return not all(tf.is_symbolic_tensor(target) and target.op.type != "Sum" for target in targets)


def _parts(targets: list[Any], upstreams: list[Any], rows: StepRows) -> Iterator[tuple[Any, Any]]:
    """What a tape should take gradients of, each with what they are multiplied by; None: one."""
    for target, upstream in zip(targets, upstreams, strict=True):
        is_loss = tf.is_tensor(target) and not isinstance(target, (keras.Variable, tf.Variable))
        if not is_loss or not target.dtype.is_floating or _has_rows(target):
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


def _has_rows(target: Any) -> bool:
    """Whether `target` holds a number per row, or several, or of something else than rows, and no loss.

    One that stacks a few losses is those.
    """
    if not tf.is_tensor(target) or isinstance(target, keras.Variable) or not target.shape.rank:
        return False
    if not tf.is_symbolic_tensor(target):
        return True  # whatever its length: all ranks must answer alike
    return not (target.op.type == "Pack" and all(part.shape.rank == 0 for part in target.op.inputs))
