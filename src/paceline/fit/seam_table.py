"""The replacements in Keras and TensorFlow, in the order in which they are installed; docs/seams.md prints them.

Of two rows for one attribute the later one is around the earlier one: what a user calls goes through the last row
first. Metrics are wrapped as they are made (`metrics.made`), and `bootstrap/drop_in.py` has the names of strategies.
Rows of `replica_loops/`, of `strategy/nested_functions.py` and of `strategy/operation_seeds.py` are installed by
themselves.
"""

import functools
from collections.abc import Iterator

import keras
import tensorflow as tf

from paceline.data import cache_files, interleaves, shuffles, stage_orders, streams
from paceline.data import compat as data_compat
from paceline.fit import (
    agreement,
    batch_statistics,
    building,
    compat,
    divided_functions,
    enqueuers,
    epochs,
    gradients,
    metrics,
    own_functions,
    predictions,
    runs,
    single_batches,
    strategies,
)
from paceline.fit.dealing import dealing_seams
from paceline.fit.evaluation import followed_fit
from paceline.fit.files import file_seams
from paceline.fit.pipelining import pipeline_seams
from paceline.fit.replica_loops import assignments
from paceline.fit.snapshots import callback_files, resumable_fit
from paceline.fit.tables import table_seams
from paceline.strategy import compat as strategy_compat
from paceline.strategy import custom_gradients
from paceline.strategy.seams import Seam

_TRAINER = compat.TensorFlowTrainer


def rows(*, of_several: bool = True) -> list[Seam]:
    """The replacements of a process whose script uses Keras.

    Args:
        of_several: Whether the process is one of several launched ones: then loops of the script's own are divided.
    """
    return [
        *_of_gradients(),
        *(_of_own_loops() if of_several else ()),
        *_of_datasets(),
        *_of_models(),
        *table_seams.rows(),
        *_of_runs(),
        *dealing_seams.rows(),
        *pipeline_seams.rows(),
        *_around_runs(),
        *file_seams.rows(),
        *callback_files.rows(resumable_fit.is_in_fit),
        *_of_hooks(),
        *_of_epochs(),
    ]


def _of_gradients() -> Iterator[Seam]:
    for optimizer in (compat.BaseOptimizer, compat.LossScaleOptimizer):
        yield Seam(
            optimizer,
            "apply",
            gradients.applied,
            "loops of a script's own are noticed; replicas' gradients are summed; one worker's update is a loop",
            in_graphs=True,
        )
    yield Seam(
        compat.BaseOptimizer,
        "build",
        gradients.built,
        "an optimizer made outside of the scope makes its slots in it",
        in_graphs=True,
    )
    noticed = "loops of a script's own are noticed"
    yield Seam(tf.GradientTape, "gradient", gradients.taken, noticed, in_graphs=True)
    yield Seam(tf, "gradients", gradients.taken_in_graph, noticed, in_graphs=True)
    yield Seam(
        strategy_compat.RegisterGradient,
        "__call__",
        custom_gradients.registered,
        "gradients of Python's own do not outlive their graphs",
    )


def _of_own_loops() -> Iterator[Seam]:
    # Every call of a traced function goes this way, so only where it can matter.
    yield Seam(
        strategy_compat.ConcreteFunction,
        "_call_flat",
        own_functions.called,
        "functions of such loops are divided; only in jobs of several workers",
    )


def _of_datasets() -> Iterator[Seam]:
    dataset = tf.data.Dataset
    yield Seam(
        data_compat.ShuffleDataset,
        "__init__",
        shuffles.with_shared_seeds,
        "all ranks draw one order, also after a restart",
        in_graphs=True,
    )
    yield Seam(
        dataset, "interleave", interleaves.as_unbound, "an order does not depend on a worker's cores", in_graphs=True
    )
    yield Seam(dataset, "cache", cache_files.of_own_name, "ranks of a host write files of their own", in_graphs=True)
    for module in strategy_compat.dataset_operations:
        yield Seam(
            module,
            tuple(stage_orders.operations_with_order(module)),
            stage_orders.in_order,
            "all ranks read one order, also with deterministic=False",
        )


def _of_models() -> Iterator[Seam]:
    yield Seam(_TRAINER, "__init__", strategies.initialised, "a model without a strategy gets one")
    # Where Keras defines it: a class with a `compile` of its own is loaded from its file uncompiled.
    yield Seam(compat.Trainer, "compile", building.without_xla, "XLA cannot compile what talks to other ranks")
    yield Seam(keras.Metric, "__init__", metrics.made, "a metric is read over ranks; loops that update one are noticed")
    yield Seam(
        _TRAINER,
        "_maybe_symbolic_build",
        building.built_without_data,
        "no batch is drawn to build a model; all ranks begin with the chief's values",
    )
    yield Seam(_TRAINER, "_make_function", divided_functions.divided, "a step is divided over the ranks")
    yield Seam(_TRAINER, "make_predict_function", divided_functions.predicting, "a step is divided over the ranks")
    yield Seam(_TRAINER, "_make_function", resumable_fit.telling_of_traces, "a trace that takes long is no hang")
    yield Seam(
        keras.layers.BatchNormalization,
        "call",
        batch_statistics.of_own_rows,
        "--batch-statistics local",
        in_graphs=True,
    )
    yield Seam(
        keras.Layer, "add_weight", assignments.told_how_to_combine, "`aggregation`, for loops with `strategy.run`"
    )


def _of_runs() -> Iterator[Seam]:
    yield Seam(
        _TRAINER,
        ("train_on_batch", "test_on_batch", "predict_on_batch"),
        single_batches.on_local_rows,
        "each rank computes its rows",
    )
    yield Seam(_TRAINER, "predict", predictions.ended_together, "ranks with rows of their own end together")
    yield Seam(_TRAINER, "fit", runs.started_together, "values are shared once; models that train apart are refused")
    for name, verbose_position in (("fit", 4), ("evaluate", 3), ("predict", 2)):
        quiet = functools.partial(runs.quiet_on_followers, verbose_position=verbose_position)
        yield Seam(_TRAINER, name, quiet, "one progress bar")
        yield Seam(_TRAINER, name, runs.told_by_chief, "one terminal, one voice")
        yield Seam(_TRAINER, name, streams.readings_ended, "a generator is left where one worker leaves it")
    yield Seam(keras.Model, "summary", runs.summary_by_chief, "one terminal, one voice")
    yield Seam(compat.io_utils, "print_msg", runs.unless_silent, "one terminal, one voice")
    yield Seam(_TRAINER, "fit", resumable_fit.resumable, "snapshots, and resumption")


def _around_runs() -> Iterator[Seam]:
    keras_fit = _TRAINER.fit
    yield Seam(
        _TRAINER,
        "fit",
        functools.partial(followed_fit.followed, keras_fit=keras_fit),
        "in an evaluator a `fit` follows snapshots",
    )
    # Once more around all: Keras's own is inside the functions that stand here by now.
    yield Seam(
        _TRAINER,
        ("fit", "evaluate", "predict"),
        compat.filter_traceback,
        "tracebacks leave Paceline's frames out where Keras leaves out its own",
    )


def _of_hooks() -> Iterator[Seam]:
    hooks = keras.callbacks.CallbackList
    for hook in (*agreement.BEGIN_HOOKS, *agreement.EPOCH_HOOKS, *agreement.BATCH_HOOKS):
        yield Seam(hooks, hook, agreement.agreed(hook), "what a callback decides on one rank holds for all")
    for hook in resumable_fit.HOOKS:
        yield Seam(hooks, hook, resumable_fit.after_hook(hook), "snapshots and events come after the callbacks")


def _of_epochs() -> Iterator[Seam]:
    yield Seam(
        _TRAINER,
        "_get_metrics_result_or_logs",
        resumable_fit.with_restored_logs,
        "the logs of an epoch whose last step was in another process",
    )
    yield Seam(
        compat.trainer_module,
        "reduce_per_replica",
        predictions.as_they_are,
        "outputs of a divided step are whole",
        in_graphs=True,
    )
    yield Seam(
        compat.PyDatasetAdapter,
        "_finite_generator",
        enqueuers.with_items_in_order,
        "an item that is None is an error",
    )
    yield Seam(
        compat.trainer_module,
        "TFEpochIterator",
        functools.partial(epochs.epoch_iterator_class, follow=resumable_fit.follow),
        "each rank gets its rows",
    )
