"""A list of callbacks on one of several ranks: Keras's `CallbackList`. What a hook of the list goes through:

    observer: about to begin           snapshots note what comes before the callbacks
    └─ agreement                       what a callback decides on one rank holds for all
       └─ the engine's logs            under parameter servers, whoever looks at them waits for them
          └─ Keras's own               each callback of the list, in its order
    observer: has ended                snapshots and events come after the callbacks

The methods of Keras's class are replaced, and not the class: scripts and libraries may have imported it before.
"""

from collections.abc import Callable
from typing import Any

import keras

from paceline.comm.step_clock import Phase
from paceline.comm.world import current_world
from paceline.fit.agreement import BATCH_HOOKS, BEGIN_HOOKS, EPOCH_HOOKS, agreement_of
from paceline.fit.engine import engine_of
from paceline.fit.files.keras_callbacks import is_follower, is_left_out
from paceline.fit.run import observer
from paceline.fit.step_times import hook_ended
from paceline.strategy.seams import Seam

Function = Callable[..., Any]

_AGREEMENT = "_paceline_agreement"
"""On a list: how its ranks agree; None: it has no other ranks."""


def rows() -> list[Seam]:
    """The replacements of the list's methods."""
    hooks = (*BEGIN_HOOKS, *EPOCH_HOOKS, *BATCH_HOOKS)
    why = "what a callback decides on one rank holds for all; snapshots and events come after the callbacks"
    return [
        Seam(keras.callbacks.CallbackList, "__init__", made, "callbacks for the chief only"),
        Seam(keras.callbacks.CallbackList, hooks, called, why),
    ]


def made(keras_init: Function) -> Function:
    """`CallbackList.__init__`, which on followers leaves out what is for the chief only."""

    def __init__(  # noqa: N807
        self: Any,
        callbacks: Any = None,
        add_history: bool = False,
        add_progbar: bool = False,
        model: Any = None,
        **params: Any,
    ) -> None:
        if callbacks:
            callbacks = keras.tree.flatten(callbacks)  # Keras takes a single one for one that may run in a thread
        if callbacks and is_follower(model):
            flat = callbacks
            callbacks = [callback for callback in flat if not is_left_out(callback)]
            for callback in flat:
                if is_left_out(callback):
                    # The script may ask it for its model, which every callback has.
                    keras.callbacks.Callback.set_model(callback, model)
                    keras.callbacks.Callback.set_params(callback, params)
        keras_init(self, callbacks, add_history, add_progbar, model, **params)

    return __init__


def called(keras_hook: Function) -> Function:
    """A hook of all callbacks. Collective, if a callback of some rank may decide something there."""
    name = keras_hook.__name__
    if name in BEGIN_HOOKS:

        def hook(self: Any, logs: Any = None) -> None:
            _call(name, self, 0, logs, lambda given: keras_hook(self, given))

        return hook

    def hook_at(self: Any, position: int, logs: Any = None) -> None:
        _call(name, self, position, logs, lambda given: keras_hook(self, position, given))

    return hook_at


def _call(name: str, callbacks: Any, position: int, logs: Any, by_keras: Callable[[Any], None]) -> None:
    """Calls a hook.

    Args:
        name: Its.
        callbacks: The list.
        position: The epoch or batch that the hook is given; 0 for those of a whole call.
        logs: What Keras, or a loop of the script's own, gives it.
        by_keras: Calls it of each callback in the list, with logs.
    """
    by, model = observer(), getattr(callbacks, "_model", None)  # a list without a model is one of a loop
    clock = current_world().clock
    clock.step_ended()  # also one that has found no data, after which there is no hook for it
    if by is not None and model is not None:
        by.hook_begins(name, callbacks, logs)
    if name in BEGIN_HOOKS and getattr(callbacks, _AGREEMENT, None) is None:
        setattr(callbacks, _AGREEMENT, agreement_of(callbacks, model))
    agreement = getattr(callbacks, _AGREEMENT, None)

    def call() -> None:
        before = clock.enter(Phase.CALLBACKS)
        try:
            by_keras(engine_of(model).logs_for(name, callbacks.callbacks, logs))
        finally:
            clock.leave(before)

    if agreement is None or not agreement.watches(name):
        call()
    else:
        with clock.during(Phase.AGREEMENT):
            agreement.run(name, call)
            if name == "on_train_begin":
                agreement.compare_first_epochs()
    if by is not None and model is not None:
        by.hook_ended(name, callbacks, position, logs)
    if name == "on_train_batch_begin":
        clock.step_begins(getattr(model, "steps_per_execution", 1))
    else:
        hook_ended(name, callbacks)
