"""The state of callbacks as a part of a snapshot: what training has changed since `fit` received them."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import keras

from paceline.fit.chief_only import is_chief_only
from paceline.resilience.attributes import attributes_of, encode_captured, getter_of, restore
from paceline.resilience.initial_state import initial_state_of, mark_changed, take_initial_state
from paceline.resilience.object_state import decode
from paceline.resilience.parts import Arrays, Part, Saved, Scope

_LOGGER = logging.getLogger("paceline")

_NOT_STATE = frozenset({"model", "_model", "params", "validation_data", "append", "append_header"})
"""The last two: what `CSVLogger` finds in its file (`callback_files.py`)."""
_KERAS_OWN: tuple[type, ...] = (keras.callbacks.ProgbarLogger, keras.callbacks.History)
"""`fit` makes them itself: a bar begins anew, and history is a part by itself."""
_CHIEF_ONLY = "chief_only"
"""Marks the state of a callback that other ranks have none of."""
_COMPARISONS = {"less": keras.ops.less, "greater": keras.ops.greater}
"""What callbacks that watch a metric hold as `monitor_op`."""


def callbacks_begin(callbacks: Sequence[Any], *, holds_values: bool) -> None:
    """A `fit` begins: what its callbacks hold before their `on_train_begin` is the script's own.

    Args:
        callbacks: All of them.
        holds_values: Whether they will be restored, once they have begun.
    """
    for callback in _users(callbacks):
        attributes = [] if getter_of(callback) else attributes_of(callback, left_out=_NOT_STATE)
        take_initial_state(callback, attributes, holds_values=holds_values)


def callbacks_part(callbacks: Callable[[], Sequence[Any]], *, is_chief: bool) -> Part:
    """The callbacks of a `fit`.

    Args:
        callbacks: Gives those of the `fit`, or, where it is skipped, all that the script has given to it.
        is_chief: Whether this rank is the chief: on others, those for the chief only are not Keras's (see
            `keras_callbacks.py`), so they have no place among the rest.
    """
    return Part(
        "callbacks",
        Scope.RANK,
        lambda arrays: _captured(callbacks(), arrays),
        lambda saved: _restore(callbacks(), saved, is_chief=is_chief),
    )


def _captured(callbacks: Sequence[Any], arrays: Arrays) -> list[Any]:
    """Of each callback its class, and what `attributes.encode_captured` finds."""
    states = []
    for index, callback in enumerate(_users(callbacks)):
        initial_state = initial_state_of(callback)
        is_kept = None if initial_state is None else initial_state.has_changed
        state = {
            "held": encode_captured(callback, arrays.captured.live, f"{arrays.name}/{index}", _NOT_STATE, is_kept),
            "monitor_op": _name_of_comparison(getattr(callback, "monitor_op", None)),
            _CHIEF_ONLY: is_chief_only(callback),
        }
        states.append([type(callback).__name__, state])
    return states


def _users(callbacks: Sequence[Any]) -> list[Any]:
    return [callback for callback in callbacks if not isinstance(callback, _KERAS_OWN)]


def _restore(callbacks: Sequence[Any], saved: Saved, *, is_chief: bool) -> None:
    """Gives each callback its state; where the script has other callbacks now, says so."""
    callbacks, states = _users(callbacks), saved.state
    if not is_chief:
        callbacks = [callback for callback in callbacks if not is_chief_only(callback)]
        states = [(name, state) for name, state in states if not state[_CHIEF_ONLY]]
    theirs, ours = [name for name, _ in states], [type(callback).__name__ for callback in callbacks]
    if theirs != ours:
        _LOGGER.warning(
            "the snapshot was taken with the callbacks %s, but the script has %s: only a callback at the same "
            "position in the list gets its state back",
            ", ".join(theirs) or "(none)",
            ", ".join(ours) or "(none)",
        )
    for callback, (name, state) in zip(callbacks, states, strict=False):
        if type(callback).__name__ != name:
            continue
        held, initial_state = decode(state["held"], saved.arrays), initial_state_of(callback)
        restore(callback, held, {} if initial_state is None else initial_state.take_values())
        if held["hook"] is None:
            mark_changed(callback, held["state"])
        if state["monitor_op"] is not None:
            callback.monitor_op = _COMPARISONS[state["monitor_op"]]


def _name_of_comparison(function: Any) -> str | None:
    return next((name for name, known in _COMPARISONS.items() if function is known), None)
