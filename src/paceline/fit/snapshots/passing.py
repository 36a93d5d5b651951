"""A `fit` that had ended, in a rerun: all is put where it had left it, nothing is trained and no callback runs."""

import logging
from collections.abc import Callable
from typing import Any

import keras

from paceline.comm.world import World
from paceline.fit.building import build_from
from paceline.fit.snapshots.data_cursor import DataCursor, Unfollowed
from paceline.fit.snapshots.restored import SOURCE, Restored, put_back, put_back_history, read
from paceline.resilience.keeper import Keeper
from paceline.resilience.object_state import decode

_LOGGER = logging.getLogger("paceline")


class Passing:
    """Stands in for a recorder while a `fit` that had ended is passed over.

    Args:
        keeper: Where its snapshots are.
        world: The ranks that had trained its model.
        fit_call: The number of this call of `fit` in the script, from 0.
    """

    def __init__(self, keeper: Keeper, world: World, fit_call: int) -> None:
        self._keeper = keeper
        self._world = world
        self._fit_call = fit_call
        self._is_chief = world.rank == 0
        self._data: DataCursor | None = None

    def follow(self, epochs: Any) -> DataCursor | Unfollowed:
        """The training data, which is left where the `fit` had left it."""
        if self._data is not None:
            return Unfollowed()
        self._data = DataCursor(epochs, self._is_chief)
        return self._data

    def owns(self, callbacks: Any) -> bool:
        """No callbacks run."""
        del callbacks
        return False

    def over(self, model: Any, keras_fit: Callable[..., Any], arguments: Any) -> tuple[Any, int]:
        """The `History` that the `fit` had returned, and the steps of the job when it had ended. Collective."""
        info = self._keeper.end_of_fit(self._fit_call)
        is_own = info is not None
        info = info or self._keeper.found
        assert info is not None
        restored = read(self._keeper, info, self._world)
        callbacks = keras.tree.flatten(arguments.get("callbacks") or [])
        history = keras_fit(**{**arguments, "epochs": 0, "initial_epoch": 0, "callbacks": None, "verbose": 0})
        assert self._data is not None
        self._data.advance(restored.own["cursor"]["batches"])
        build_from(model, self._data.element_spec)
        if is_own:
            self._data.source.put_back(decode(restored.own.get(SOURCE), restored.tensors))
            put_back(model, callbacks, restored, self._world)
            put_back_history(history, restored)
            self._say_where_it_comes_from(restored, len(history.epoch))
        else:
            self._take_what_fits(model, callbacks, history, restored)
        return history, info.step

    def _take_what_fits(self, model: Any, callbacks: Any, history: Any, restored: Restored) -> None:
        """Of a snapshot of a later `fit`, which may have trained another model."""
        lost = "fit number %d had ended, and its last snapshot is not there or damaged: "
        try:
            put_back(model, callbacks, restored, self._world)
        except ValueError as fault:
            if self._is_chief:
                _LOGGER.warning(
                    lost + "its model stays UNTRAINED, as the script has made it. What the script computes from it, or "
                    "saves of it, before it is trained again is an untrained model's. The newest snapshot, %s, is no "
                    "help: %s",
                    self._fit_call + 1,
                    restored.info.name,
                    fault,
                )
            return
        put_back_history(history, restored)
        if self._is_chief:
            _LOGGER.warning(
                lost + "the model gets the weights of %s, which are later ones. What the script computes before its "
                "next fit comes from those.",
                self._fit_call + 1,
                restored.info.name,
            )

    def _say_where_it_comes_from(self, restored: Restored, num_epochs: int) -> None:
        if self._is_chief:
            _LOGGER.info(
                "fit number %d had ended after step %d (%d epochs): not trained again; weights and history come from "
                "%s",
                self._fit_call + 1,
                restored.info.step,
                num_epochs,
                restored.info.path,
            )
