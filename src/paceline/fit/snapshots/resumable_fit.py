"""A `fit` that resumes after a failure: which calls are skipped, which call resumes, and who is told of its steps.

The k-th call of `fit` in a script is the k-th one in every run of it. A rerun passes over the calls that had ended: the
model, its callbacks and random generators are put where the call had left them, so that what the script does next
(evaluate, save, compile) comes out as it did; a call whose end is lost is trained again. The last one goes on from the
newest snapshot.
"""

import functools
import inspect
import logging
import os
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.comm.world import World, current_world
from paceline.events.bus import bus
from paceline.events.worker_events import TrainingResumed
from paceline.fit.snapshots.data_cursor import DataCursor, Unfollowed
from paceline.fit.snapshots.fit_parts import MODEL, refuse_another_model
from paceline.fit.snapshots.fit_progress import HOOKS_OF_BATCHES, FitProgress, logs_in
from paceline.fit.snapshots.recorder import Recorder
from paceline.fit.snapshots.skipped_fits import FinishedFits, SkippedFit
from paceline.fit.snapshots.validation import Validation
from paceline.fit.strategies import paceline_strategy_of, servers_strategy_of
from paceline.resilience.manager import SnapshotManager
from paceline.resilience.parts import Layout
from paceline.resilience.random_generators import warn_of_unrestorable_draws
from paceline.resilience.schedule import Schedule, parse_schedule, preemption_of
from paceline.resilience.usable_snapshots import ENDS_FIT

_LOGGER = logging.getLogger("paceline")

Function = Callable[..., Any]

DEFAULT_KEEP = 3
_DEFAULT_EVERY = "60s"


class _Process:
    """What this process knows of its fits."""

    def __init__(self) -> None:
        self.fit_calls = 0
        self.past = FinishedFits()
        self.recorder: Recorder | SkippedFit | None = None
        self.managers: dict[str, SnapshotManager] = {}
        self.in_fit = False
        self.is_training = False
        """Whether a `fit` has been begun, or gone on with, that is not passed over."""
        self.progress: FitProgress | None = None
        """Of the `fit` that goes on, if it takes no snapshots."""


_process = _Process()


def is_in_fit() -> bool:
    """Whether a `fit` with snapshots is going on."""
    return _process.in_fit


def follow(epochs: Any) -> DataCursor | Unfollowed:
    """For a new epoch iterator: who follows it through its data."""
    return Unfollowed() if _process.recorder is None else _process.recorder.follow(epochs)


def resumable(keras_fit: Function) -> Function:
    """Keras's `fit`, which takes snapshots and goes on from one, where the user wants that. Collective then."""
    signature = inspect.signature(keras_fit)

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _process.in_fit or _process.progress is not None:
            # A callback trains another model: part of the step that it is called in.
            return keras_fit(self, *args, **kwargs)
        fit_call, _process.fit_calls = _process.fit_calls, _process.fit_calls + 1
        arguments = signature.bind(self, *args, **kwargs).arguments
        world = _world_of(self)
        wanted = snapshot_options(arguments.get("callbacks"), os.environ) if world is not None else None
        if world is None:
            return keras_fit(self, *args, **kwargs)
        if wanted is None:
            _tell_of_beginning(world)
            return _watched_fit(keras_fit, arguments, fit_call, world)
        _process.in_fit = True
        preemption = preemption_of(world)
        preemption.enter_fit()
        try:
            history = _recorded_fit(self, keras_fit, arguments, fit_call, wanted, world)
        finally:
            _process.in_fit = False
            _process.recorder = None
            preemption.leave_fit()
        preemption.leave_if_told()
        return history

    return fit


def _tell_of_beginning(world: World) -> None:
    """The watcher hears how many steps a death has cost, also where no snapshot says so."""
    if world.identity.generation > 1 and not _process.is_training:
        bus.emit(TrainingResumed(world.rank, _process.past.steps, 0, world.identity.generation, ""))
    _process.is_training = True


def _watched_fit(keras_fit: Function, arguments: Any, fit_call: int, world: World) -> Any:
    """A `fit` without snapshots."""
    progress = _process.progress = FitProgress(world, fit_call, _process.past.steps, arguments["self"])
    progress.begin()
    try:
        history = keras_fit(**arguments)
    except BaseException:
        progress.end(has_failed=True)
        raise
    finally:
        _process.past.steps, _process.progress = progress.step, None
    progress.end()
    return history


def _recorded_fit(model: Any, keras_fit: Function, arguments: Any, fit_call: int, wanted: Any, world: World) -> Any:
    directory, schedule, keep = wanted
    manager = _manager_at(directory, world, keep, (paceline_strategy_of(model) or world).models)
    progress, found = FitProgress(world, fit_call, _process.past.steps), manager.found
    resumed = None if found is None or found.fit_call != fit_call else manager.saved(found)
    if found is not None and (found.fit_call, bool(found.notes.get(ENDS_FIT))) >= (fit_call, True):
        skipped = SkippedFit(manager, world, fit_call, _process.past)
        if skipped.had_raised():
            return _fit_again(keras_fit, arguments, fit_call, world)
        if not skipped.is_lost():
            _process.recorder = skipped
            progress.begin(is_repeated=True)
            return skipped.over(model, keras_fit, arguments)
        resumed = skipped.to_train_again()
    progress.begin()
    if resumed is None:
        _tell_of_beginning(world)
    _process.is_training = True
    validation = Validation(arguments.get("validation_data"), is_chief=manager.leads)
    recorder = Recorder(model, manager, schedule, world, fit_call, _process.past, validation, resumed, progress)
    _process.recorder = recorder
    first_epoch = model._initial_epoch
    try:
        history = keras_fit(**arguments)
    except BaseException:
        recorder.failed()
        raise
    finally:
        model._initial_epoch = first_epoch
        _process.past.steps = recorder.progress.step
    recorder.ended()
    return history


def _fit_again(keras_fit: Function, arguments: Any, fit_call: int, world: World) -> Any:
    """A `fit` that had come back with an exception, which the script had caught: nothing but training raises it again.

    It takes no snapshots: there are later ones.
    """
    preemption_of(world).leave_fit()  # no step of it could be gone on from: told to stop, the process leaves at once
    _process.past.raised.add(fit_call)
    if world.is_chief:
        _LOGGER.info(
            "call %d of fit raised an exception in the first run, which the script caught. This call is trained "
            "again without snapshots, up to the exception",
            fit_call + 1,
        )
    history = _watched_fit(keras_fit, arguments, fit_call, world)
    if world.is_chief:
        _LOGGER.warning(
            "call %d of fit raised an exception in the first run, but not this time: from here on the script "
            "may behave differently from the first run",
            fit_call + 1,
        )
    return history


def snapshot_options(callbacks: Any, variables: Any) -> tuple[str, Schedule, int | str] | None:
    """Directory, schedule and which snapshots to keep: the callback's, else the launcher's; None: no snapshots."""
    for callback in keras.tree.flatten(callbacks or []):
        wish = getattr(callback, "paceline_snapshots", None)
        if wish is not None:
            directory, schedule, keep = wish
            return str(directory), schedule, keep
    options = read_variables(JobOptions, variables, "snapshot_dir", "snapshot_every", "snapshot_keep")
    if options.snapshot_dir is None:
        return None
    schedule = parse_schedule(options.snapshot_every or _DEFAULT_EVERY)
    return options.snapshot_dir, schedule, options.snapshot_keep or DEFAULT_KEEP


def _world_of(model: Any) -> World | None:
    """The ranks that train `model`; None for a model that each of several ranks trains by itself, or TensorFlow."""
    strategy = paceline_strategy_of(model)
    if strategy is not None:
        return strategy.world
    world = current_world()
    has_other_strategy = model._distribute_strategy is not None and servers_strategy_of(model) is None
    return None if has_other_strategy or world.size > 1 else world


def _manager_at(directory: str, world: World, keep: int | str, models: tuple[tuple[int, ...], ...]) -> SnapshotManager:
    if directory not in _process.managers:
        # Each model takes steps of its own, so its ranks take snapshots of their own; the first in the directory.
        job = Layout(world.rank, models)
        layout = Layout(job.group.index(world.rank), (tuple(range(len(job.group))),))
        notes = {MODEL: [job.index, len(models)]} if len(models) > 1 else {}
        folder = f"{directory}/group-{job.index}" if job.index else directory
        manager = SnapshotManager(folder, world, layout, keep, notes)
        manager.open()
        if manager.found is not None:
            refuse_another_model(manager.found, job.index, len(models))
        _process.managers[directory] = manager
    return _process.managers[directory]


# Where in a `fit` its recorder is told.


def after_hook(hook: str) -> Callable[[Function], Function]:
    """Wraps `CallbackList`'s method `hook`, after which the recorder of this `fit` is told."""

    def wrap(keras_hook: Function) -> Function:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = _process.recorder
            if not isinstance(recorder, Recorder):
                result = keras_hook(self, *args, **kwargs)
                if _process.progress is not None:
                    _process.progress.count(hook, args, kwargs, self)
                return result
            if hook == "on_test_begin" and recorder.owns(self):
                recorder.validation_begins()
            if hook == "on_train_begin" and self.model is recorder.model:
                recorder.train_begins(self)
            if hook == "on_epoch_end" and recorder.owns(self):
                recorder.epoch_ends(logs_in(args, kwargs))
            result = keras_hook(self, *args, **kwargs)
            if hook == "on_train_begin" and self.model is recorder.model:
                recorder.train_begun(self)
            elif recorder.owns(self):
                _tell(recorder, hook, args, kwargs)
            else:
                recorder.progress.count_others(hook, self.model)
            return result

        return method

    return wrap


def _tell(recorder: Recorder, hook: str, args: Any, kwargs: Any) -> None:
    if hook == "on_train_batch_end":
        recorder.step_ended(args[0], logs_in(args, kwargs))
    elif hook == "on_test_batch_end":
        recorder.validation_step_ended()
    elif hook == "on_epoch_begin":
        recorder.epoch_begun(args[0])
    elif hook == "on_epoch_end":
        recorder.progress.epoch_ended(logs_in(args, kwargs))


HOOKS = ("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_test_begin", "on_predict_begin", *HOOKS_OF_BATCHES)


def telling_of_traces(keras_make_function: Function) -> Function:
    """Keras's `TensorFlowTrainer._make_function`: the watcher does not miss a step that has to be traced first."""

    def _make_function(self: Any, step_function: Function) -> Any:
        @functools.wraps(step_function)
        def step(data: Any) -> Any:
            recorder = _process.recorder if isinstance(_process.recorder, Recorder) else None
            progress = _process.progress if recorder is None else recorder.progress
            if progress is not None and not tf.executing_eagerly():
                progress.tracing()
            result = step_function(data)
            if recorder is not None and not tf.executing_eagerly():
                warn_of_unrestorable_draws(tf.compat.v1.get_default_graph(), is_chief=current_world().is_chief)
            return result

        return keras_make_function(self, step)

    return _make_function


def with_restored_logs(keras_results: Function) -> Function:
    """`Trainer._get_metrics_result_or_logs`, given the logs of the last step, also if that was in another process."""

    def results(self: Any, logs: Any) -> Any:
        recorder = _process.recorder
        if isinstance(recorder, Recorder) and recorder.model is self:
            logs = recorder.logs_of_last_step(logs)
        return keras_results(self, logs)

    return results
