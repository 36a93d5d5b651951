"""The replacements in Keras and TensorFlow, and the engines; docs/seams.md prints them.

In a process that uses one engine, an attribute has one replacement, with a few exceptions that a test lists: of two
rows for one attribute the later one is around the earlier one. Metrics are wrapped as they are made (`metrics.made`),
and `bootstrap/drop_in.py` has the names of strategies. Rows of `strategy/nested_functions.py` and of
`strategy/operation_seeds.py` are installed by themselves.
"""

from collections.abc import Iterator

import keras
import tensorflow as tf

from paceline.data import cache_files
from paceline.data import compat as data_compat
from paceline.data.order import shuffles, stage_orders
from paceline.fit import (
    batch_statistics,
    chief_output,
    compat,
    epochs,
    gradients,
    layer_weights,
    metrics,
    own_functions,
    predictions,
    rank_callbacks,
    strategies,
)
from paceline.fit.engine import Engine
from paceline.fit.files import file_seams
from paceline.fit.replica_loops import seams as loop_seams
from paceline.fit.replicas import Replicas
from paceline.fit.sources import enqueuers
from paceline.parameter_server import engine as server_engine
from paceline.pipeline import engine as pipeline_engine
from paceline.seams import trainer
from paceline.strategy import compat as strategy_compat
from paceline.strategy import custom_gradients, variables
from paceline.strategy.seams import Seam

ENGINES: tuple[type[Engine], ...] = (Replicas, server_engine.Servers, pipeline_engine.Pipeline)
"""Besides plain Keras."""

of_servers = server_engine.rows
"""The replacements of a process that makes a `ParameterServerStrategy`."""
of_pipelines = pipeline_engine.rows
"""The replacements of a process that makes a `PipelineStrategy`."""
of_loops = loop_seams.rows
"""The replacements of a process with a loop with `strategy.run` over several replicas."""

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
        *_of_trainers(),
        *_of_models(),
        *_of_data(),
        *file_seams.rows(),
    ]


def all_rows() -> list[Seam]:
    """Those of any process."""
    return [*rows(), *of_servers(), *of_pipelines(), *of_loops()]


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
        dataset, "interleave", stage_orders.as_unbound, "an order does not depend on a worker's cores", in_graphs=True
    )
    yield Seam(dataset, "cache", cache_files.of_own_name, "ranks of a host write files of their own", in_graphs=True)
    for module in strategy_compat.dataset_operations:
        yield Seam(
            module,
            tuple(stage_orders.operations_with_order(module)),
            stage_orders.in_order,
            "all ranks read one order, also with deterministic=False",
        )


def _of_trainers() -> Iterator[Seam]:
    engines = "which engine trains the model decides"
    yield Seam(_TRAINER, "__init__", strategies.initialised, "a model without a strategy gets one")
    yield Seam(
        _TRAINER,
        ("fit", "evaluate", "predict"),
        trainer.surrounded,
        "evaluators, refusals, snapshots, generators, one terminal: in this order (`seams/trainer.py`)",
    )
    yield Seam(_TRAINER, ("train_on_batch", "test_on_batch", "predict_on_batch"), trainer.on_batch, engines)
    # Where Keras defines it: a class with a `compile` of its own is loaded from its file uncompiled.
    yield Seam(compat.Trainer, "compile", trainer.compiled, engines)
    yield Seam(_TRAINER, "_maybe_symbolic_build", trainer.built, f"{engines}; no batch is drawn to build a model")
    yield Seam(_TRAINER, "_make_function", trainer.made_function, engines)
    yield Seam(_TRAINER, "make_predict_function", trainer.made_predict_function, engines)
    yield Seam(compat.Trainer, "reset_metrics", trainer.reset, engines)
    yield Seam(
        _TRAINER,
        "_get_metrics_result_or_logs",
        trainer.epoch_logs,
        f"{engines}; of an epoch whose last step was in another process",
    )
    yield from rank_callbacks.rows()


def _of_models() -> Iterator[Seam]:
    plain = "a strategy leaves Keras's variables plain"
    yield Seam(keras.Variable, "_initialize", variables.made_by_keras, plain, in_graphs=True)
    yield Seam(keras.Metric, "__init__", metrics.made, "a metric is read over ranks; loops that update one are noticed")
    yield Seam(
        keras.layers.BatchNormalization,
        "call",
        batch_statistics.of_own_rows,
        "--batch-statistics local",
        in_graphs=True,
    )
    yield Seam(
        keras.Layer,
        "add_weight",
        layer_weights.added,
        "weights may be elsewhere, by their engine; `aggregation`, for loops with `strategy.run`",
        in_graphs=True,
    )
    yield Seam(keras.Model, "summary", chief_output.summarized, "one terminal, one voice")
    yield Seam(
        compat.io_utils,
        "print_msg",
        chief_output.printed,
        "one terminal, one voice; an export is named as the script names it",
    )


def _of_data() -> Iterator[Seam]:
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
    yield Seam(compat.trainer_module, "TFEpochIterator", epochs.epoch_iterator_class, "each rank gets its rows")
