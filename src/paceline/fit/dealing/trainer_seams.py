"""Keras's trainer under parameter servers: where its methods deal, wait for dealt steps, or give them up."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from paceline.fit.dealing.dealt_functions import (
    DealtFunction,
    DealtLogs,
    DealtPrediction,
    Deferred,
    cancel,
    drain,
    end_pass,
)
from paceline.fit.dealing.home_metrics import as_it_is
from paceline.fit.dealing.refused_fits import check_made_after_strategy
from paceline.fit.strategies import servers_strategy_of

Function = Callable[..., Any]

_WITHOUT_LOGS = (
    keras.callbacks.Callback,
    keras.callbacks.BackupAndRestore,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.TerminateOnNaN,
)
"""Callbacks that take the logs of a batch as they are, also empty ones."""


def dealt(keras_make_function: Function) -> Function:
    """Keras's `TensorFlowTrainer._make_function`."""

    def _make_function(self: Any, step_function: Function) -> Any:
        if servers_strategy_of(self) is None:
            return keras_make_function(self, step_function)
        return DealtFunction(self, step_function)

    return _make_function


def dealt_prediction(keras_make_predict_function: Function) -> Function:
    """Keras's `TensorFlowTrainer.make_predict_function`."""

    def make_predict_function(self: Any, force: bool = False) -> Any:
        if servers_strategy_of(self) is None:
            return keras_make_predict_function(self, force=force)
        if self.predict_function is None or force:
            self.predict_function = DealtPrediction(self)
        return self.predict_function

    return make_predict_function


def after_all_steps(keras_reset_metrics: Function) -> Function:
    """Keras's `reset_metrics`, with which epochs and evaluations begin."""

    def reset_metrics(self: Any) -> None:
        if servers_strategy_of(self) is not None:
            drain(self)
            check_made_after_strategy([*self.variables, *self.metrics_variables])
            for function in (self.train_function, self.test_function):
                if isinstance(function, DealtFunction):
                    function.begin()
        keras_reset_metrics(self)

    return reset_metrics


def of_all_steps(keras_get_logs: Function) -> Function:
    """Keras's `_get_metrics_result_or_logs`: the logs of an epoch or evaluation, once all its steps have ended."""

    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        if not isinstance(logs, DealtLogs):
            return keras_get_logs(self, logs)
        end_pass(self)
        # An evaluation that follows resets the metrics.
        return {name: as_it_is(value) for name, value in keras_get_logs(self, logs.now()).items()}

    return _get_metrics_result_or_logs


def left_with_nothing_running(keras_method: Function) -> Function:
    """`fit`, `evaluate`, `predict` and their like on one batch: however it ends, no step is running afterwards."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if servers_strategy_of(self) is None:
            return keras_method(self, *args, **kwargs)
        drain(self)  # a callback of a `fit` may evaluate
        try:
            result = keras_method(self, *args, **kwargs)
            end_pass(self)
        except BaseException:
            cancel(self)
            raise
        return result

    return method


def predicted_at_once(keras_predict_on_batch: Function) -> Function:
    """Keras's `predict_on_batch`."""

    def predict_on_batch(self: Any, x: Any) -> Any:
        if servers_strategy_of(self) is None:
            return keras_predict_on_batch(self, x)
        self.make_predict_function()
        [outputs] = self.predict_function([(x,)]).wait()
        return tf.nest.map_structure(_as_array, outputs)

    return predict_on_batch


def with_outputs(keras_hook: Function) -> Function:
    """`CallbackList.on_predict_batch_end`: a callback that looks at the outputs of a batch waits for them."""

    def on_predict_batch_end(self: Any, batch: Any, logs: Any = None) -> Any:
        deferred = (logs or {}).get("outputs")
        if isinstance(deferred, Deferred) and any(map(_looks_at_outputs, self.callbacks)):
            steps = deferred.wait()
            logs = {**logs, "outputs": steps[0] if len(steps) == 1 else tf.nest.map_structure(_joined, *steps)}
        return keras_hook(self, batch, logs)

    return on_predict_batch_end


def with_first_logs(keras_hook: Function) -> Function:
    """`CallbackList`'s hook at the end of a batch: a callback that looks at the logs waits for the first step.

    Nobody else does: the other workers take steps meanwhile, and Keras's bar shows numbers a little later.
    """
    name = keras_hook.__name__

    def hook(self: Any, batch: Any, logs: Any = None) -> Any:
        is_empty = isinstance(logs, DealtLogs) and not logs
        if is_empty and any(_looks_at_logs(callback, name) for callback in self.callbacks):
            logs = logs.of_a_step()
        return keras_hook(self, batch, logs)

    return hook


def with_nan_noticed(keras_hook: Function) -> Function:
    """`CallbackList.on_epoch_end`: Keras's `TerminateOnNaN`, which looks at batches, sees the whole epoch.

    At the end of a batch the chief knows the loss of the steps that have ended; of a short epoch, of none.
    """

    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> Any:
        for callback in self.callbacks:
            is_one = isinstance(callback, keras.callbacks.TerminateOnNaN)
            if is_one and servers_strategy_of(callback.model) is not None and not callback.model.stop_training:
                callback.on_batch_end(callback.params["steps"] - 1 if callback.params.get("steps") else 0, logs)
        return keras_hook(self, epoch, logs)

    return on_epoch_end


def drained_first(keras_save: Function) -> Function:
    """A function of Keras's that saves a model, its first argument."""

    def save(model: Any, *args: Any, **kwargs: Any) -> Any:
        drain(model)
        return keras_save(model, *args, **kwargs)

    return save


def _looks_at_outputs(callback: Any) -> bool:
    own = type(callback).on_predict_batch_end
    return own not in (
        keras.callbacks.Callback.on_predict_batch_end,
        keras.callbacks.ProgbarLogger.on_predict_batch_end,
    )


def _looks_at_logs(callback: Any, hook: str) -> bool:
    if isinstance(callback, keras.callbacks.ModelCheckpoint) and callback.save_freq == "epoch":
        return False
    # Keras's own of the first calls the second.
    names = ("on_train_batch_end", "on_batch_end") if hook == "on_train_batch_end" else (hook,)
    own = [getattr(callback, name) for name in names]
    functions = [getattr(method, "__func__", method) for method in own]
    return any(
        all(function is not getattr(kind, name) for kind in _WITHOUT_LOGS)
        for name, function in zip(names, functions, strict=True)
    )


def _joined(*outputs: Any) -> Any:
    return tf.concat(outputs, 0)


def _as_array(output: Any) -> Any:
    return output if isinstance(output, (tf.RaggedTensor, tf.SparseTensor)) else keras.ops.convert_to_numpy(output)
