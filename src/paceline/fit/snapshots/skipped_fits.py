"""A call of `fit` that had finished, in a resumed run: its final state is restored, and nothing is trained."""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from paceline.comm.group import Reduction
from paceline.comm.world import World
from paceline.fit.building import build_from
from paceline.fit.run import FitObserver
from paceline.fit.snapshots.data_cursor import DataCursor
from paceline.fit.snapshots.data_position import DATA
from paceline.fit.snapshots.fit_parts import STOPPED, result_parts
from paceline.fit.snapshots.validation import Validation
from paceline.resilience.manager import SnapshotManager
from paceline.resilience.parts import Arrays, Part, Saved, Scope
from paceline.resilience.restored_parts import SavedParts
from paceline.resilience.usable_snapshots import keeps_end_of
from paceline.store.manifest import SnapshotInfo

_LOGGER = logging.getLogger("paceline")

_FINISHED = "finished_fits"


@dataclass(slots=True)
class FinishedFits:
    """The calls of `fit` before the one that goes on, by their numbers."""

    steps: int = 0
    """Optimizer steps of the job; stands in the manifest."""
    batches: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """How many each call that has ended had taken from each of its iterators over the data."""
    raised: set[int] = field(default_factory=set)
    """Calls that came back with an exception."""
    are_exact: bool = True
    """Whether the newest of them has left what it had left in the first run; False: weights of a later one."""

    def part(self) -> Part:
        """For the snapshots of later calls."""
        return Part(_FINISHED, Scope.RANK, self._captured, self.restore)

    def _captured(self, arrays: Arrays) -> Any:
        calls = sorted(self.batches)
        told = {
            "calls": calls,
            "iterators": [len(self.batches[call]) for call in calls],
            "batches": [count for call in calls for count in self.batches[call]],
            "raised": sorted(self.raised),
        }
        return arrays.value(told)

    def restore(self, saved: Saved) -> None:
        """As a snapshot knows it; `steps` stands in its manifest."""
        told = saved.value
        left = iter(told["batches"])
        self.batches.clear()
        for call, length in zip(told["calls"], told["iterators"], strict=True):
            self.batches[call] = tuple(next(left) for _ in range(length))
        self.raised = set(told["raised"])


class SkippedFit(FitObserver):
    """Stands in for a recorder while a `fit` that had ended is passed over.

    Args:
        manager: Where its snapshots are.
        world: The ranks that had trained its model.
        fit_call: The number of this call of `fit` in the script, from 0.
        past: What this process knows of the calls before it; is told of this one.
    """

    def __init__(self, manager: SnapshotManager, world: World, fit_call: int, past: FinishedFits) -> None:
        self._manager = manager
        self._world = world
        self._fit_call = fit_call
        self._past = past
        self._speaks = manager.leads
        self._data: DataCursor | None = None

    def follows(self, epochs: Any) -> DataCursor | None:
        """See `FitObserver`: the training data, which is left where the `fit` had left it."""
        if self._data is not None:
            return None
        self._data = DataCursor(epochs, self._speaks)
        return self._data

    def had_raised(self) -> bool:
        """Whether the `fit` had come back with an exception instead of a `History`, on some rank. Collective."""
        if self._end is not None:
            return False
        had_raised = self._fit_call in self._past_of_snapshot.raised
        [on_some_rank] = self._manager.group.all_reduce([np.array([had_raised], np.int8)], Reduction.MAX)
        return bool(on_some_rank[0])

    @functools.cached_property
    def _end(self) -> SnapshotInfo | None:
        """The snapshot in which it had ended, if it is there and whole. Collective."""
        return self._manager.newest_of_fit(self._fit_call, ends_fit=True)

    @functools.cached_property
    def _earlier(self) -> SnapshotInfo | None:
        """The newest one that was taken before it had ended. Collective."""
        return self._manager.newest_of_fit(self._fit_call, ends_fit=False)

    @functools.cached_property
    def _snapshot(self) -> SavedParts:
        """That one, or the newest: it knows of all the calls before its own."""
        info = self._end or self._manager.found
        assert info is not None
        return self._manager.saved(info)

    @functools.cached_property
    def _past_of_snapshot(self) -> FinishedFits:
        past = FinishedFits()
        self._snapshot.restore([past.part()])
        return past

    def is_lost(self) -> bool:
        """Whether its result is nowhere, and training it again gives the same. Collective.

        Not where it ended too many calls ago for its last snapshot to stay: a script of many calls of `fit` would begin
        anew at each restart.
        """
        found = self._manager.found
        if self._end is not None or found is None or not keeps_end_of(self._fit_call, found.fit_call):
            return False
        return self._past.are_exact or self._earlier is not None

    def to_train_again(self) -> SavedParts | None:
        """The snapshot to train it again from; None: from its beginning. Collective."""
        earlier = self._earlier
        if self._speaks:
            _LOGGER.warning(
                "call %d of fit had finished, but its last snapshot is missing or damaged. This call is trained again "
                "from %s, so that the script gets the same model and history; the call that had not finished "
                "then resumes.",
                self._fit_call + 1,
                "its beginning" if earlier is None else earlier.name,
            )
        self._past.are_exact = True
        return None if earlier is None else self._manager.saved(earlier)

    def over(self, model: Any, fit: Callable[..., Any], arguments: Any) -> Any:
        """The `History` that the `fit` had returned. Collective."""
        batches = tuple(self._snapshot.of(DATA).state["cursor"]["batches"])
        if self._end is None:  # the newest knows of it, unless the script took no snapshots in this `fit` then
            batches = self._past_of_snapshot.batches.get(self._fit_call, batches)
        callbacks = keras.tree.flatten(arguments.get("callbacks") or [])
        history = fit(epochs=0, initial_epoch=0, callbacks=None, verbose=0)
        assert self._data is not None
        self._data.advance(batches)
        build_from(model, self._data.element_spec)
        results = result_parts(model, lambda: callbacks, is_chief=self._world.is_chief, speaks=self._speaks)
        if self._end is not None:
            validation = Validation(arguments.get("validation_data"), self._speaks)
            self._snapshot.restore([self._data.held.part(), validation.part(), *results])
            validation.pass_over()
            self._say_where_it_comes_from(history.epoch, arguments)
        else:
            self._restore_what_fits(results)
        self._past.are_exact = self._end is not None
        self._past.steps = self._snapshot.info.step
        self._past.batches[self._fit_call] = batches
        return history

    def _restore_what_fits(self, results: Sequence[Part]) -> None:
        """Of a snapshot of a later `fit`, which may have trained another model."""
        lost = "call %d of fit had finished too many calls ago for its last snapshot to be kept: "
        name = self._snapshot.info.name
        try:
            self._snapshot.restore(results)
        except ValueError as fault:
            if self._speaks:
                _LOGGER.warning(
                    lost + "its model stays UNTRAINED. Until the model is trained again, the script uses and saves "
                    "untrained weights. The newest snapshot, %s, cannot be used: %s",
                    self._fit_call + 1,
                    name,
                    fault,
                )
            return
        if self._speaks:
            _LOGGER.warning(
                lost + "the model gets the weights of %s, which were trained further. The script uses them until its "
                "next fit.",
                self._fit_call + 1,
                name,
            )

    def _say_where_it_comes_from(self, epochs: Sequence[int], arguments: Any) -> None:
        if not self._speaks:
            return
        _LOGGER.info(
            "call %d of fit had finished after step %d (%d epochs) and is not repeated: weights and history "
            "come from %s. To train again from the beginning, use another --snapshot-dir, or remove this one "
            "first.",
            self._fit_call + 1,
            self._snapshot.info.step,
            len(epochs),
            self._snapshot.info.path,
        )
        wanted = arguments.get("epochs", 1)
        done = max(epochs, default=arguments.get("initial_epoch", 0) - 1) + 1
        if wanted > done and not self._snapshot.of(STOPPED).state:
            _LOGGER.warning(
                "the script now has epochs=%d, but call %d of fit finished with epochs=%d: the additional "
                "epochs are NOT trained. To train them, use another --snapshot-dir and start this fit from the "
                "trained weights: save the weights, load them, and set initial_epoch=%d.",
                wanted,
                self._fit_call + 1,
                done,
                done,
            )
