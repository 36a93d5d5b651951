"""Installs the patches: once per process, after Keras was imported. They do nothing outside Paceline's strategies."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from paceline.cluster.keras_backend import check_keras_backend
from paceline.comm.world import current_world
from paceline.importing import after_import, around_import
from paceline.observe.frames import PACELINE

_installed = False


def install_with_keras() -> None:
    """Installs the seam now if Keras has been imported, else right after it will be."""
    around_import("keras", _on_tensorflow)
    after_import("keras", _install)


@contextmanager
def _on_tensorflow() -> Iterator[None]:
    """A backend that the script has set is refused in a sentence, before its import fails or takes seconds."""
    check_keras_backend(os.environ)
    yield


def _install(keras: ModuleType) -> None:
    global _installed
    if _installed:
        return
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            f"Paceline trains Keras on TensorFlow, but Keras was imported with the backend {backend!r}. "
            "Set KERAS_BACKEND=tensorflow before keras is imported. [keras-backend]"
        )
    _installed = True
    import tensorflow

    from paceline.data import cache_files, interleaves, shuffles, streams
    from paceline.data import compat as data_compat
    from paceline.fit import (
        agreement,
        batch_statistics,
        building,
        compat,
        divided_functions,
        early_epochs,
        enqueuers,
        epochs,
        gradients,
        metrics,
        predictions,
        runs,
        single_batches,
        strategies,
    )
    from paceline.fit.evaluation import followed_fit
    from paceline.fit.files import file_seams
    from paceline.fit.pipelining import pipeline_seams
    from paceline.fit.replica_loops import assignments
    from paceline.fit.replica_loops import seams as loop_seams
    from paceline.fit.snapshots import callback_files, resumable_fit
    from paceline.fit.tables import table_seams
    from paceline.strategy import custom_gradients
    from paceline.strategy.compat import RegisterGradient
    from paceline.strategy.replica_loops import before_first_loop

    compat.check()
    for optimizer in (compat.BaseOptimizer, compat.LossScaleOptimizer):
        _replace_in_graphs(optimizer, "apply", gradients.applied)
    _replace_in_graphs(compat.BaseOptimizer, "build", gradients.built)
    _replace_in_graphs(tensorflow.GradientTape, "gradient", gradients.taken)
    _replace_in_graphs(tensorflow, "gradients", gradients.taken_in_graph)
    _install_own_loops()
    _replace(RegisterGradient, "__call__", custom_gradients.registered)
    trainer = compat.TensorFlowTrainer
    keras_fit = trainer.fit
    _replace_in_graphs(data_compat.ShuffleDataset, "__init__", shuffles.with_shared_seeds)
    _replace_in_graphs(tensorflow.data.Dataset, "interleave", interleaves.as_unbound)
    _replace_in_graphs(tensorflow.data.Dataset, "cache", cache_files.of_own_name)
    _keep_orders()
    _replace(trainer, "__init__", strategies.initialised)
    # Where Keras defines it: a class with a `compile` of its own is loaded from its file uncompiled.
    _replace(compat.Trainer, "compile", building.without_xla)
    _replace(keras.Metric, "__init__", metrics.made)
    _replace(trainer, "_maybe_symbolic_build", building.built_without_data)
    _replace(trainer, "_make_function", divided_functions.divided)
    _replace(trainer, "make_predict_function", divided_functions.predicting)
    _replace(trainer, "_make_function", resumable_fit.telling_of_traces)
    _replace_in_graphs(keras.layers.BatchNormalization, "call", batch_statistics.of_own_rows)
    _replace(keras.Layer, "add_weight", assignments.told_how_to_combine)
    table_seams.install(_replace, _replace_in_graphs)
    for name in ("train_on_batch", "test_on_batch", "predict_on_batch"):
        _replace(trainer, name, single_batches.on_local_rows)
    _replace(trainer, "predict", predictions.ended_together)
    _replace(trainer, "fit", runs.started_together)
    _replace(trainer, "fit", early_epochs.with_early_epochs)
    for name, verbose_position in (("fit", 4), ("evaluate", 3), ("predict", 2)):
        _replace(trainer, name, functools.partial(runs.quiet_on_followers, verbose_position=verbose_position))
        _replace(trainer, name, runs.told_by_chief)
        _replace(trainer, name, streams.readings_ended)
    _replace(keras.Model, "summary", runs.summary_by_chief)
    _replace(compat.io_utils, "print_msg", runs.unless_silent)
    _replace(trainer, "fit", resumable_fit.resumable)
    _install_dealing(keras, compat)
    pipeline_seams.install(_replace, _replace_in_graphs)
    _replace(trainer, "fit", functools.partial(followed_fit.followed, keras_fit=keras_fit))
    _hide_own_frames(compat)
    file_seams.install(keras, _replace)
    before_first_loop(lambda: loop_seams.install(_replace, _replace_in_graphs))
    callback_files.install(_replace, file_seams.spread, resumable_fit.is_in_fit)
    for hook in (*agreement.BEGIN_HOOKS, *agreement.EPOCH_HOOKS, *agreement.BATCH_HOOKS):
        _replace(keras.callbacks.CallbackList, hook, agreement.agreed(hook))
    for hook in resumable_fit.HOOKS:
        _replace(keras.callbacks.CallbackList, hook, resumable_fit.after_hook(hook))
    _replace(trainer, "_get_metrics_result_or_logs", resumable_fit.with_restored_logs)
    _replace_in_graphs(compat.trainer_module, "reduce_per_replica", predictions.as_they_are)
    compat.PyDatasetAdapter._finite_generator = enqueuers.items_in_order
    compat.trainer_module.TFEpochIterator = epochs.epoch_iterator_class(
        compat.trainer_module.TFEpochIterator, resumable_fit.follow
    )


def _install_own_loops() -> None:
    """Every call of a traced function goes this way, so only where it can matter."""
    from paceline.fit import own_functions
    from paceline.strategy import compat

    if current_world().launched and current_world().size > 1:
        _replace(compat.ConcreteFunction, "_call_flat", own_functions.called)


def _keep_orders() -> None:
    """Stages that may give their rows in any order keep the order, where several ranks read the same."""
    from paceline.data import stage_orders
    from paceline.strategy.compat import dataset_operations

    for module in dataset_operations:
        for name in stage_orders.operations_with_order(module):
            _replace(module, name, stage_orders.in_order)


def _install_dealing(keras: ModuleType, compat: ModuleType) -> None:
    """What `fit`, `evaluate` and `predict` do under parameter servers."""
    from paceline.fit.dealing import atomic_updates, dealt_functions, refused_fits, step_trace, trainer_seams

    trainer = compat.TensorFlowTrainer
    _replace_in_graphs(keras.Variable, "assign_add", atomic_updates.added)
    _replace_in_graphs(keras.Variable, "assign_sub", atomic_updates.subtracted)
    _replace_in_graphs(keras.random.SeedGenerator, "next", step_trace.drawn_in_dealt_step)
    _replace(trainer, "_make_function", trainer_seams.dealt)
    _replace(trainer, "make_predict_function", trainer_seams.dealt_prediction)
    _replace(compat.Trainer, "reset_metrics", trainer_seams.after_all_steps)
    _replace(trainer, "predict_on_batch", trainer_seams.predicted_at_once)
    _replace(compat.trainer_module, "potentially_ragged_concat", dealt_functions.put_together)
    _replace(keras.callbacks.CallbackList, "on_predict_batch_end", trainer_seams.with_outputs)
    _replace(keras.callbacks.CallbackList, "on_epoch_end", trainer_seams.with_nan_noticed)
    for name in ("on_train_batch_end", "on_test_batch_end"):
        _replace(keras.callbacks.CallbackList, name, trainer_seams.with_first_logs)
    for name in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"):
        _replace(trainer, name, trainer_seams.left_with_nothing_running)
    for name in ("fit", "evaluate", "predict"):
        _replace(trainer, name, refused_fits.checked)
    _replace(trainer, "_get_metrics_result_or_logs", trainer_seams.of_all_steps)
    for name in ("save_model", "save_weights"):
        _replace(compat.saving_api, name, trainer_seams.drained_first)
    _replace(keras.Model, "export", trainer_seams.drained_first)


def _hide_own_frames(compat: ModuleType) -> None:
    """Tracebacks leave Paceline's frames out where Keras leaves out its own."""
    compat.hide_frames_of(PACELINE)
    for name in ("fit", "evaluate", "predict"):
        # Once more around all: Keras's own is inside the functions that stand here by now.
        _replace(compat.TensorFlowTrainer, name, compat.filter_traceback)


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Puts `wrap(original)` in the original's place, under its name and documentation."""
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(wrap(original)))


def _replace_in_graphs(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """As `_replace`, for what users' `tf.function`s reach: AutoGraph leaves it alone, as it does Keras's own."""
    from paceline.strategy.graph_collectives import as_written

    _replace(owner, name, lambda original: as_written(wrap(original)))
