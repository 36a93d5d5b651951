"""Keras's trainer. What surrounds a call of `fit`, `evaluate` or `predict`, in its order; the rest asks the engine.

    tracebacks           leave Paceline's frames out where Keras leaves out its own
    evaluator            a `fit` follows snapshots in place of training; nothing below takes place
    engine: check        what cannot be trained is refused before anything is done
    engine: running      however the call ends, no step is running afterwards
    snapshots            a `fit` goes on from one, or is passed over: it may do less than it was asked for
    Run                  what this thread is in; afterwards a generator is left where one worker leaves it
    step times           the chief says where the time of a `fit` goes; from here on Keras runs

Whatever is above may leave out all that is below it.
"""

import inspect
import os
from collections.abc import Callable
from typing import Any

from paceline.cluster.evaluator_task import is_evaluator
from paceline.evaluation.followed_fit import followed
from paceline.fit import compat
from paceline.fit.chief_output import is_quiet
from paceline.fit.engine import check_call, check_foreign, engine_of
from paceline.fit.run import Run, observer
from paceline.fit.snapshots.resumable_fit import fit_with_snapshots
from paceline.fit.step_times import timed

Function = Callable[..., Any]


def surrounded(keras_method: Function) -> Function:
    """Keras's `fit`, `evaluate` or `predict`."""
    signature, name = inspect.signature(keras_method), keras_method.__name__

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            call = signature.bind(self, *args, **kwargs)
        except TypeError:
            return keras_method(self, *args, **kwargs)  # Keras's own error
        if name == "fit" and is_evaluator(os.environ):
            call.apply_defaults()
            return followed(self, call.arguments)
        check_call(self, name, call.arguments)

        def run(**changed: Any) -> Any:
            arguments = {**call.arguments, **changed, **({"verbose": 0} if is_quiet() else {})}
            given = inspect.BoundArguments(signature, arguments)
            epochs = arguments.get("initial_epoch", 0), arguments.get("epochs", 1)
            with Run.begun(self, name, epochs) as begun, timed(begun):
                return keras_method(*given.args, **given.kwargs)

        with engine_of(self).running(self, name):
            return fit_with_snapshots(self, call.arguments, run) if name == "fit" else run()

    filtered: Function = compat.filter_traceback(method)
    return filtered


def on_batch(keras_method: Function) -> Function:
    """Keras's `train_on_batch`, `test_on_batch` or `predict_on_batch`."""
    signature, name = inspect.signature(keras_method), keras_method.__name__

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            call = signature.bind(self, *args, **kwargs)
        except TypeError:
            return keras_method(self, *args, **kwargs)
        engine = engine_of(self)
        if name == "train_on_batch":
            check_foreign(self, name)
        del call.arguments["self"]
        with engine.running(self, name):
            return engine.on_batch(self, name, call.arguments, lambda **given: keras_method(self, **given))

    return method


def compiled(keras_compile: Function) -> Function:
    """Keras's `Trainer.compile`."""
    signature = inspect.signature(keras_compile)

    def compile_(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            jit_compile = signature.bind(self, *args, **kwargs).arguments.get("jit_compile")
        except TypeError:
            return keras_compile(self, *args, **kwargs)
        return engine_of(self).compiled(self, jit_compile, lambda: keras_compile(self, *args, **kwargs))

    return compile_


def built(keras_build: Function) -> Function:
    """Keras's `_maybe_symbolic_build`."""

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        engine_of(self).built(
            self, iterator, data_batch, lambda: keras_build(self, iterator=iterator, data_batch=data_batch)
        )

    return _maybe_symbolic_build


def made_function(keras_make: Function) -> Function:
    """Keras's `_make_function`."""

    def _make_function(self: Any, step_function: Function) -> Any:
        return engine_of(self).function(self, step_function, lambda step: keras_make(self, step))

    return _make_function


def made_predict_function(keras_make: Function) -> Function:
    """Keras's `make_predict_function`."""

    def make_predict_function(self: Any, force: bool = False) -> Any:
        if self.predict_function is not None and not force:
            return self.predict_function

        def by_keras() -> Any:
            keras_make(self, force=force)
            return self.predict_function

        self.predict_function = engine_of(self).predict_function(self, by_keras)
        return self.predict_function

    return make_predict_function


def reset(keras_reset: Function) -> Function:
    """Keras's `reset_metrics`."""

    def reset_metrics(self: Any) -> None:
        engine_of(self).reset(self)
        keras_reset(self)

    return reset_metrics


def epoch_logs(keras_logs: Function) -> Function:
    """Keras's `_get_metrics_result_or_logs`, given the logs of the last step, also if that was in another process."""

    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        by = observer()
        if by is not None:
            logs = by.logs_of_last_step(self, logs)
        return engine_of(self).epoch_logs(self, logs, lambda given: keras_logs(self, given))

    return _get_metrics_result_or_logs
