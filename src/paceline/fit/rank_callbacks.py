"""A list of callbacks on one of several ranks, in the place of Keras's `CallbackList`. What a hook goes through:

observer: about to begin           snapshots note what comes before the callbacks
└─ agreement                       what a callback decides on one rank holds for all
   └─ the engine's logs            under parameter servers, whoever looks at them waits for them
      └─ Keras's own               each callback of the list, in its order
observer: has ended                snapshots and events come after the callbacks
"""

from collections.abc import Callable
from typing import Any

import keras

from paceline.fit.agreement import BATCH_HOOKS, BEGIN_HOOKS, EPOCH_HOOKS, Agreement, agreement_of
from paceline.fit.engine import engine_of
from paceline.fit.files.keras_callbacks import is_follower, is_left_out
from paceline.fit.run import observer

_KerasList: Any = keras.callbacks.CallbackList


class RankCallbacks(keras.callbacks.CallbackList):  # type: ignore[misc]  # Keras is untyped
    """Callbacks of a call of `fit`, `evaluate` or `predict`, or of a loop of the script's own.

    Followers leave out what is for the chief only. The arguments are Keras's.
    """

    _agreement: Agreement | None = None

    def __init__(
        self,
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
        super().__init__(callbacks, add_history, add_progbar, model, **params)

    def _call(self, hook: str, position: int | None, logs: Any) -> None:
        """Calls a hook of all callbacks. Collective, if a callback of some rank may decide something there.

        Args:
            hook: Its name.
            position: The epoch or batch that it is given; None: neither.
            logs: What it is given.
        """
        by = observer()
        if by is not None:
            by.hook_begins(hook, self, logs)
        if hook in BEGIN_HOOKS and self._agreement is None:
            self._agreement = agreement_of(self)

        def call() -> None:
            given = engine_of(self.model).logs_for(hook, self.callbacks, logs)
            getattr(_KerasList, hook)(self, *(() if position is None else (position,)), given)

        if self._agreement is None or not self._agreement.watches(hook):
            call()
        else:
            self._agreement.run(hook, call)
            if hook == "on_train_begin":
                self._agreement.compare_first_epochs()
        if by is not None:
            by.hook_ended(hook, self, position or 0, logs)


def _of_call(hook: str) -> Callable[..., None]:
    def method(self: RankCallbacks, logs: Any = None) -> None:
        self._call(hook, None, logs)

    return method


def _of_epoch(hook: str) -> Callable[..., None]:
    def method(self: RankCallbacks, epoch: int, logs: Any = None) -> None:
        self._call(hook, epoch, logs)

    return method


def _of_batch(hook: str) -> Callable[..., None]:
    def method(self: RankCallbacks, batch: int, logs: Any = None) -> None:
        self._call(hook, batch, logs)

    return method


for _hooks, _made in ((BEGIN_HOOKS, _of_call), (EPOCH_HOOKS, _of_epoch), (BATCH_HOOKS, _of_batch)):
    for _hook in _hooks:
        setattr(RankCallbacks, _hook, _made(_hook))
