"""A `fit` that resumes after a failure: which calls are skipped, which call resumes, and who is told of its steps.

The k-th call of `fit` in a script is the k-th one in every run of it. A rerun passes over the calls that had ended: the
model, its callbacks and random generators are put where the call had left them, so that what the script does next
(evaluate, save, compile) comes out as it did; a call whose end is lost is trained again. The last one goes on from the
newest snapshot.
"""

import logging
import os
from collections.abc import Callable
from typing import Any

import keras

from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.comm.world import World
from paceline.events.bus import bus
from paceline.events.worker_events import TrainingResumed
from paceline.fit.engine import engine_of
from paceline.fit.run import observed_by, observer
from paceline.fit.snapshots.fit_parts import MODEL, refuse_another_model
from paceline.fit.snapshots.fit_progress import FitProgress
from paceline.fit.snapshots.recorder import Recorder
from paceline.fit.snapshots.skipped_fits import FinishedFits, SkippedFit
from paceline.fit.snapshots.validation import Validation
from paceline.resilience.manager import SnapshotManager
from paceline.resilience.parts import Layout
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
        self.managers: dict[str, SnapshotManager] = {}
        self.in_fit = False
        self.is_training = False
        """Whether a `fit` has been begun, or gone on with, that is not passed over."""


_process = _Process()


def is_in_fit() -> bool:
    """Whether a `fit` with snapshots is going on."""
    return _process.in_fit


def fit_with_snapshots(model: Any, arguments: dict[str, Any], fit: Function) -> Any:
    """A call of `fit`, which takes snapshots and goes on from one, where the user wants that. Collective then.

    Args:
        model: What is trained.
        arguments: Of the call, without defaults.
        fit: Trains, and returns the `History`; its keywords replace arguments.
    """
    if _process.in_fit or observer() is not None:
        return fit()  # a callback trains another model: part of the step that it is called in
    fit_call, _process.fit_calls = _process.fit_calls, _process.fit_calls + 1
    world = engine_of(model).world
    if world is None:
        return fit()
    wanted = snapshot_options(arguments.get("callbacks"), os.environ)
    if wanted is None:
        _tell_of_beginning(world)
        return _watched_fit(fit, model, fit_call, world)
    _process.in_fit = True
    preemption = preemption_of(world)
    preemption.enter_fit()
    try:
        history = _recorded_fit(model, fit, arguments, fit_call, wanted, world)
    finally:
        _process.in_fit = False
        preemption.leave_fit()
    preemption.leave_if_told()
    return history


def _tell_of_beginning(world: World) -> None:
    """The watcher hears how many steps a death has cost, also where no snapshot says so."""
    if world.identity.generation > 1 and not _process.is_training:
        bus.emit(TrainingResumed(world.rank, _process.past.steps, 0, world.identity.generation, ""))
    _process.is_training = True


def _watched_fit(fit: Function, model: Any, fit_call: int, world: World) -> Any:
    """A `fit` without snapshots."""
    progress = FitProgress(world, fit_call, _process.past.steps, model)
    progress.begin()
    try:
        with observed_by(progress):
            history = fit()
    except BaseException:
        progress.end(has_failed=True)
        raise
    finally:
        _process.past.steps = progress.step
    progress.end()
    return history


def _recorded_fit(model: Any, fit: Function, arguments: Any, fit_call: int, wanted: Any, world: World) -> Any:
    directory, schedule, keep = wanted
    manager = _manager_at(directory, world, keep, engine_of(model).models)
    progress, found = FitProgress(world, fit_call, _process.past.steps), manager.found
    resumed = None if found is None or found.fit_call != fit_call else manager.saved(found)
    if found is not None and (found.fit_call, bool(found.notes.get(ENDS_FIT))) >= (fit_call, True):
        skipped = SkippedFit(manager, world, fit_call, _process.past)
        if skipped.had_raised():
            return _fit_again(fit, model, fit_call, world)
        if not skipped.is_lost():
            progress.begin(is_repeated=True)
            with observed_by(skipped):
                return skipped.over(model, fit, arguments)
        resumed = skipped.to_train_again()
    progress.begin()
    if resumed is None:
        _tell_of_beginning(world)
    _process.is_training = True
    validation = Validation(arguments.get("validation_data"), is_chief=manager.leads)
    recorder = Recorder(model, manager, schedule, world, fit_call, _process.past, validation, resumed, progress)
    first_epoch = model._initial_epoch
    try:
        with observed_by(recorder):
            history = fit()
    except BaseException:
        recorder.failed()
        raise
    finally:
        model._initial_epoch = first_epoch
        _process.past.steps = recorder.progress.step
    recorder.ended()
    return history


def _fit_again(fit: Function, model: Any, fit_call: int, world: World) -> Any:
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
    history = _watched_fit(fit, model, fit_call, world)
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
