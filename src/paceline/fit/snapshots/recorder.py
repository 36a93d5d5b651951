"""One `fit` with snapshots: when they are taken, what they contain, and how the run resumes.

on_train_begin ─► on_epoch_begin ─► [step ─ on_train_batch_end]… ─► evaluate ─► on_epoch_end ─► … ─► end
                        │                      │                       │                              │
                        │ goes on here:        │ snapshot if due,      │ notes what it takes          │ snapshot
                        │ state comes back     │ or somebody leaves    │ to come back here            │ of the end
                        ▼ after the callbacks' on_epoch_begin, whose effects it overwrites
"""

import functools
import logging
import time
from typing import Any

from paceline.comm.step_clock import Phase
from paceline.comm.step_flags import flags_of_all
from paceline.comm.world import World, current_world
from paceline.errors import EXIT_PREEMPTED
from paceline.events.bus import bus
from paceline.events.worker_events import Preempted, TrainingResumed
from paceline.fit import compat
from paceline.fit.building import build_from
from paceline.fit.engine import engine_of
from paceline.fit.run import FitObserver
from paceline.fit.snapshots import callback_files, callback_state
from paceline.fit.snapshots.data_cursor import DataCursor
from paceline.fit.snapshots.data_position import DATA
from paceline.fit.snapshots.fit_parts import (
    TAKEN_AT,
    meta_of,
    metrics_in,
    noted_metrics,
    result_parts,
    warn_of_another_seed,
)
from paceline.fit.snapshots.fit_progress import FitProgress, plain
from paceline.fit.snapshots.model_state import look_again
from paceline.fit.snapshots.skipped_fits import FinishedFits
from paceline.fit.snapshots.validation import Validation
from paceline.resilience.manager import SnapshotManager
from paceline.resilience.parts import Arrays, Captured, Part, Saved, Scope, capture
from paceline.resilience.random_generators import warn_of_unrestorable_draws
from paceline.resilience.restored_parts import SavedParts
from paceline.resilience.schedule import Schedule
from paceline.resilience.write_failures import tell_of_leaving

_LOGGER = logging.getLogger("paceline")

_LEAVING_SECONDS = 6.0
_END_SECONDS = 120.0


class Recorder(FitObserver):
    """Takes the snapshots of one `fit`, and brings it back to where one was taken.

    Args:
        model: What is trained.
        manager: Where snapshots go.
        schedule: When.
        world: The ranks that train it.
        fit_call: The number of this call of `fit` in the script, from 0.
        past: What is known of the calls before it; is told of this one when that is over.
        validation: Follows the data of its validations.
        resumed: The snapshot to go on from, taken in this `fit`; None: from its beginning.
        progress: Counts its steps.
    """

    def __init__(
        self,
        model: Any,
        manager: SnapshotManager,
        schedule: Schedule,
        world: World,
        fit_call: int,
        past: FinishedFits,
        validation: Validation,
        resumed: SavedParts | None,
        progress: FitProgress,
    ) -> None:
        self.model = model
        self.progress = progress
        self._engine = engine_of(model)
        self._manager = manager
        self._schedule = schedule
        self._world = world
        self._fit_call = fit_call
        self._past = past
        self._resumed = resumed
        self._has_looked = False
        """At what the model holds besides its layers."""
        self._has_no_epochs = False
        """Whether the script wants fewer than had been begun."""
        self._data: DataCursor | None = None
        self._callbacks: Any = None
        self._csv_files: Part
        self._logs: dict[str, Any] = {}
        self._logs_are_restored = False
        self._metrics: dict[str, Any] = {}
        self._validation = validation
        self._before_validation: Captured | None = None
        self._snapshot_at = time.monotonic()

    # What happens in `fit`.

    def follows(self, epochs: Any) -> DataCursor:
        """See `FitObserver`. The first iterator is over the training data."""
        cursor = DataCursor(epochs, is_chief=self._manager.leads, follows_source=self._data is None)
        self._data = self._data or cursor
        return cursor

    def hook_begins(self, hook: str, callbacks: Any, logs: Any) -> None:
        """See `FitObserver`."""
        if hook == "on_train_begin" and callbacks.model is self.model:
            self.train_begins(callbacks)
        elif callbacks is not self._callbacks:
            return
        elif hook == "on_test_begin":
            self.validation_begins()
        elif hook == "on_epoch_end":
            self.epoch_ends(logs)

    def hook_ended(self, hook: str, callbacks: Any, position: int, logs: Any) -> None:
        """See `FitObserver`."""
        if hook == "on_train_begin" and callbacks.model is self.model:
            self.train_begun(callbacks)
        elif callbacks is not self._callbacks:
            self.progress.count_others(hook, callbacks.model)
        elif hook == "on_train_batch_end":
            self.step_ended(position, logs)
        elif hook == "on_test_batch_end":
            self.validation_step_ended()
        elif hook == "on_epoch_begin":
            self.epoch_begun(position)
        elif hook == "on_epoch_end":
            self.progress.epoch_ended(logs)

    def tracing(self) -> None:
        """See `FitObserver`."""
        self.progress.tracing()

    def traced(self, graph: Any) -> None:
        """See `FitObserver`."""
        warn_of_unrestorable_draws(graph, is_chief=current_world().is_chief)

    def train_begins(self, callbacks: Any) -> None:
        """The callbacks' `on_train_begin` is about to run."""
        callback_state.callbacks_begin(callbacks.callbacks, holds_values=self._resumed is not None)
        self._csv_files = callback_files.csv_part(callbacks.callbacks, leads=self._manager.leads)
        if self._resumed is not None:
            self._resumed.restore([self._csv_files])  # before `on_train_begin`, which would empty them
        else:
            name = f"begin-of-fit-{self._fit_call + 1}"
            callback_files.begin(callbacks.callbacks, functools.partial(self._manager.noted_first, name))

    def train_begun(self, callbacks: Any) -> None:
        """The callbacks' `on_train_begin` has run."""
        self._callbacks = callbacks
        look_again(self.model)  # it may have been compiled again
        if self._resumed is None:
            return
        epoch = self.model._initial_epoch = self._resumed.of(DATA).state["cursor"]["epoch"]
        wanted = (callbacks.params or {}).get("epochs")
        if wanted is not None and epoch >= wanted:  # no epoch will begin
            self._has_no_epochs = True
            self._resume(self._resumed)
            self._resumed = None
            if self._manager.leads:
                _LOGGER.warning(
                    "this fit was in epoch %d when the snapshot was taken, but the script now has epochs=%d: "
                    "nothing is trained, and the model is as in the snapshot. With more epochs, training "
                    "continues.",
                    epoch + 1,
                    wanted,
                )

    def epoch_begun(self, epoch: int) -> None:
        """The callbacks' `on_epoch_begin` has run."""
        assert self._data is not None
        self.progress.begin_epoch(epoch)
        self._before_validation = None  # before a step assigns the variables
        self._validation.is_over()
        self._data.begin_epoch(epoch)
        if self._resumed is not None:
            self._resume(self._resumed)
            self._resumed = None
        self.progress.epoch_has_begun()

    def step_ended(self, end_step: int, logs: Any) -> None:
        """The callbacks' `on_train_batch_end` has run.

        Raises:
            SystemExit: the job leaves here, on all ranks; the snapshot of this step is written.
        """
        assert self._data is not None
        if not self._has_looked:
            look_again(self.model)  # after its first step it holds all that it needs
            self._has_looked = True
        before = self.progress.step
        self._logs, self._logs_are_restored = logs, False
        self._data.step_taken(end_step)
        self.progress.step_done(end_step, is_last=self._is_last_step(end_step))
        flags = flags_of_all(self._world, self._manager.group)
        if flags.is_leaving:
            self._leave(self._captured())
        is_wanted = flags.take_snapshot() or self._schedule.crosses(before, self.progress.step)
        if is_wanted or self._manager.has_none:  # the first step's: from then on a death costs no more than a while
            self._take(self._captured())
            return
        self._manager.go_on()
        if self._schedule.has_passed(time.monotonic() - self._snapshot_at) and self._manager.leads:
            flags.wants_snapshot = True
            if self._manager.group.size == 1:
                flags.receive(flags.own)

    def validation_begins(self) -> None:
        """The validation of an epoch is about to begin, before it resets the metrics."""
        self._data.end_steps()  # type: ignore[union-attr]
        if (epochs := compat.validation_iterator(self.model)) is not None:
            self._validation.begins(epochs.cursor)
        # Callbacks may change the model in a validation (SwapEMAWeights), and its own layers draw numbers.
        self._before_validation = self._captured()
        self._before_validation.settle()

    def epoch_ends(self, logs: Any) -> None:
        """The callbacks' `on_epoch_end` is about to run. The best snapshots are of the weights that were validated."""
        self._metrics = noted_metrics(logs or {}, self.progress.epoch)
        if not self._manager.metrics & (logs or {}).keys():
            return
        before, self._before_validation = self._before_validation, None
        self._data.end_steps()  # type: ignore[union-attr]
        self._take(before or self._captured())

    def validation_step_ended(self) -> None:
        """The callbacks' `on_test_batch_end` has run.

        Raises:
            SystemExit: the job leaves here; the validation begins again when it goes on.
        """
        self.progress.batch_done(is_validation=True)
        flags = flags_of_all(self._world, self._manager.group)
        if flags.is_leaving and (before := self._before_validation) is not None:
            self._leave(before)
        self._manager.go_on()

    def ended(self) -> None:
        """`fit` has come to its end: a rerun passes through here, so this snapshot is waited for."""
        self._validation.is_over()
        self.progress.end()  # first: there are no more steps to miss, however long the disk takes
        if not self._has_no_epochs:  # else the snapshot that is there stays the one to go on from
            self._take(self._captured(ends_fit=True), ends_fit=True)
        callback_files.ended()
        self._manager.settle(_END_SECONDS)
        self._manager.free_memory()
        self._past.batches[self._fit_call] = self._data.cursor.batches  # type: ignore[union-attr]

    def failed(self) -> None:
        """`fit` is about to come back with an exception, which the script may catch: then no step is due."""
        self.progress.end(has_failed=True)
        callback_files.ended()
        self._past.raised.add(self._fit_call)

    def logs_of_last_step(self, model: Any, logs: Any) -> Any:
        """See `FitObserver`: Keras has none in an epoch that was over, as its last step was in another process."""
        return self._logs if model is self.model and self._logs_are_restored and not logs else logs

    # Taking.

    def _parts(self) -> list[Part]:
        assert self._data is not None
        callbacks = self._callbacks.callbacks
        return [
            *result_parts(self.model, lambda: callbacks, is_chief=self._world.is_chief, speaks=self._manager.leads),
            self._validation.part(),
            Part("logs", Scope.RANK, self._captured_logs, self._restore_logs),
            self._past.part(),
            self._data.part(lambda: bool(self.model.stop_training)),
        ]

    def _captured_logs(self, arrays: Arrays) -> Any:
        return arrays.value(plain(self._engine.logs_by_now(self._logs)))

    def _restore_logs(self, saved: Saved) -> None:
        self._logs, self._logs_are_restored = saved.value, True

    def _captured(self, *, ends_fit: bool = False) -> Captured:
        assert self._data is not None
        with self._world.clock.during(Phase.SNAPSHOT):
            self._engine.settle(self.model)  # under parameter servers the cursor is ahead of the steps that have ended
            compat.wait_for_callbacks(self._callbacks)
            of_end = [self._data.held.part()] if ends_fit else []  # the next `fit` may go on from it
            return capture([*self._parts(), self._csv_files, *of_end], self._manager.layout)

    def _take(self, captured: Captured, *, ends_fit: bool = False) -> None:
        self._snapshot_at = time.monotonic()
        cursor = self._data.cursor  # type: ignore[union-attr]
        meta = meta_of(self._world, self._manager, self._fit_call, cursor, self._metrics, ends_fit=ends_fit)
        with self._world.clock.during(Phase.SNAPSHOT):
            self._manager.take(self.progress.step, meta, captured)

    def _leave(self, captured: Captured) -> None:
        self._take(captured)
        step = self.progress.step
        bus.emit(Preempted(self._world.rank, step))  # at once: writing makes no steps, and must not count as a hang
        if not (in_time := self._manager.settle(_LEAVING_SECONDS, is_leaving=True)):
            self._manager.give_up()
        if self._manager.leads:
            saved = self._manager.committed, self._manager.found
            tell_of_leaving(step, self.progress.epoch, *saved, in_time=in_time, launched=self._world.launched)
        raise SystemExit(EXIT_PREEMPTED)

    def _is_last_step(self, end_step: int) -> bool:
        """Whether this `fit` ends with it; also False where the length of an epoch is not known."""
        parameters = self._callbacks.params or {}
        return (end_step + 1, self.progress.epoch + 1) == (parameters.get("steps"), parameters.get("epochs"))

    # Going on.

    def _resume(self, snapshot: SavedParts) -> None:
        assert self._data is not None
        info, cursor = snapshot.info, snapshot.of(DATA).state["cursor"]
        if self._manager.leads:
            warn_of_another_seed(snapshot)
        build_from(self.model, self._data.element_spec)
        snapshot.restore(self._parts())
        self._metrics = metrics_in(info.notes)
        callback_files.resumed(info.step, info.notes[TAKEN_AT])  # type: ignore[arg-type]  # see `meta_of`
        self.progress.step, self.progress.steps_in_epoch = info.step, cursor["step"]
        if self._manager.leads:
            ranks = f"; taken by {info.world_size} ranks, resumed by {self._manager.group.size}"
            _LOGGER.info(
                "resuming from the snapshot of step %d: epoch %d, after %d of its steps (%s)%s",
                info.step,
                cursor["epoch"] + 1,
                cursor["step"],
                info.path,
                "" if snapshot.same_ranks else ranks,
            )
        generation = self._world.identity.generation
        bus.emit(TrainingResumed(self._world.rank, info.step, cursor["epoch"], generation, info.name))
