"""Where a pipeline enters Keras's trainer; without a `PipelineStrategy` nothing changes."""

import inspect
from collections.abc import Callable
from typing import Any

import keras

from paceline.fit import compat
from paceline.fit.beginning import compare_over_ranks, facts_of
from paceline.fit.pipelining import deferred_variables, stage_updates, whole_saves
from paceline.fit.pipelining.built_models import build
from paceline.fit.pipelining.pipelined_functions import PipelinedFunction, PipelinedPrediction
from paceline.fit.pipelining.pipelined_model import compiled_anew
from paceline.fit.pipelining.refused_models import refuse_outside_scope, refuse_xla
from paceline.fit.strategies import pipeline_strategy_of
from paceline.strategy.seams import Seam

Function = Callable[..., Any]


def rows() -> list[Seam]:
    """The replacements."""
    variable, layer, trainer = keras.Variable, keras.Layer, compat.TensorFlowTrainer
    base, saving = compat.BaseOptimizer, compat.saving_api
    elsewhere = "a stage has its own weights only"
    return [
        Seam(layer, "add_weight", deferred_variables.weighed, elsewhere, in_graphs=True),
        Seam(variable, "_initialize_with_initializer", deferred_variables.initialized, elsewhere),
        Seam(variable, "_direct_assign", deferred_variables.assigned, elsewhere),
        Seam(layer, "get_weights", deferred_variables.got, elsewhere),
        Seam(layer, "set_weights", deferred_variables.given_back, elsewhere),
        Seam(base, "_clip_gradients", stage_updates.clipped, "one norm of all stages", in_graphs=True),
        Seam(
            compat.LossScaleOptimizer,
            "check_finite",
            stage_updates.found_finite,
            "an overflow of one stage is all stages'",
            in_graphs=True,
        ),
        Seam(base, "finalize_variable_values", stage_updates.finalized, elsewhere),
        Seam(saving, ("save_model", "save_weights"), whole_saves.saved_by_all, "a file has all stages", copies=""),
        Seam(keras.callbacks.TensorBoard, "_log_weights", whole_saves.logged_by_all, "each weight is read"),
        Seam(saving, "load_weights", whole_saves.loaded_by_each, "each stage loads its own", copies=""),
        Seam(compat.Trainer, "compile", compiled, "XLA is refused; stages are traced anew"),
        Seam(trainer, ("fit", "train_on_batch"), checked, "what cannot be cut is refused before a step"),
        Seam(trainer, "_make_function", made, "a step goes through the stages"),
        Seam(trainer, "make_predict_function", made_prediction, "a step goes through the stages"),
        Seam(trainer, "_maybe_symbolic_build", built, "a model is built, then cut"),
        Seam(trainer, "_get_metrics_result_or_logs", logged, "the last stage has the logs"),
    ]


def compiled(keras_compile: Function) -> Function:
    """Keras's `Trainer.compile`, which would ask for XLA by itself on a GPU, and after which all is traced anew."""
    signature = inspect.signature(keras_compile)

    def compile_(self: Any, *args: Any, **kwargs: Any) -> Any:
        if pipeline_strategy_of(self) is None:
            return keras_compile(self, *args, **kwargs)
        refuse_xla(signature.bind(self, *args, **kwargs).arguments.get("jit_compile"))
        result = keras_compile(self, *args, **kwargs)
        self.jit_compile = False
        compiled_anew(self)
        return result

    return compile_


def checked(keras_method: Function) -> Function:
    """Keras's `fit` or `train_on_batch`, of a model that was made in a scope if the script has a pipeline."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_outside_scope(self)
        return keras_method(self, *args, **kwargs)

    return method


def made(keras_make_function: Function) -> Function:
    """Keras's `TensorFlowTrainer._make_function`."""

    def _make_function(self: Any, step_function: Function) -> Any:
        if pipeline_strategy_of(self) is None:
            return keras_make_function(self, step_function)
        return PipelinedFunction(self, training=step_function.__name__ == "train_step")

    return _make_function


def made_prediction(keras_make_predict_function: Function) -> Function:
    """Keras's `TensorFlowTrainer.make_predict_function`."""

    def make_predict_function(self: Any, force: bool = False) -> Any:
        if pipeline_strategy_of(self) is None:
            return keras_make_predict_function(self, force=force)
        if self.predict_function is None or force:
            self.predict_function = PipelinedPrediction(self)
        return self.predict_function

    return make_predict_function


def built(keras_build: Function) -> Function:
    """Keras's `_maybe_symbolic_build`: a pipeline is divided, and what is not built is built from shapes."""

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        if pipeline_strategy_of(self) is None:
            keras_build(self, iterator=iterator, data_batch=data_batch)
            return
        is_fitted = getattr(self, "_paceline_in_fit", False) and iterator is not compat.validation_iterator(self)
        batch_rows = None if iterator is None else iterator.description.batch_size
        if iterator is not None and is_fitted:
            strategy = self.distribute_strategy
            compare_over_ranks(facts_of(self, iterator.description, iterator.num_batches), strategy.fit_group)
        specs = data_batch if iterator is None else iterator._distributed_dataset.element_spec
        build(self, specs, batch_rows, is_fitted=is_fitted, is_run=iterator is not None)

    return _maybe_symbolic_build


def logged(keras_get_logs: Function) -> Function:
    """Keras's `_get_metrics_result_or_logs`: the logs of the last step are those of all steps, on every rank."""

    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        return keras_get_logs(self, logs) if pipeline_strategy_of(self) is None else logs

    return _get_metrics_result_or_logs
