"""Gradients that a script takes where nothing sums them over ranks are noted (`replica.note_gradients`)."""

from collections.abc import Callable
from typing import Any

from paceline.fit.replica import note_gradients

Function = Callable[..., Any]


def taken(tape_gradient: Function) -> Function:
    """`tf.GradientTape.gradient`."""

    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        gradients = tape_gradient(self, target, sources, *args, **kwargs)
        note_gradients(sources, gradients)
        return gradients

    return gradient


def taken_in_graph(tensorflow_gradients: Function) -> Function:
    """`tf.gradients`, which needs no tape."""

    def gradients(ys: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        taken_of = tensorflow_gradients(ys, xs, *args, **kwargs)
        note_gradients(xs, taken_of)
        return taken_of

    return gradients
