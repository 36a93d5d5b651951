"""The engine of parameter servers: the chief runs Keras's loop and dispatches steps, workers make them."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import keras
import tensorflow as tf

from paceline.comm.world import World, current_world
from paceline.fit import compat
from paceline.fit.building import build_as_far_as_known, shapes_of
from paceline.fit.engine import Engine, Function
from paceline.fit.sources.kinds import source_of
from paceline.fit.sources.source import Opened, Source
from paceline.parameter_server import atomic_updates, dispatched_functions, step_trace
from paceline.parameter_server.chief_metrics import as_it_is
from paceline.parameter_server.dispatched_functions import (
    DealtFunction,
    DealtPrediction,
    Deferred,
    DispatchedLogs,
    cancel,
    drain,
    end_pass,
)
from paceline.parameter_server.refused_fits import check, check_made_after_strategy, check_not_alone
from paceline.parameter_server.tables import table_seams
from paceline.parameter_server.tables.sharded_weights import build_in_scope, made_by_layer
from paceline.parameter_server.tables.tensorflow_saves import in_one_piece
from paceline.parameter_server.worker_data import ReadByWorkers, is_of_workers
from paceline.strategy.compat import ParameterServerStrategyV2
from paceline.strategy.first_use import SERVERS
from paceline.strategy.parameter_server import ParameterServerStrategy
from paceline.strategy.seams import Seam

_LOGGER = logging.getLogger("paceline")

_WITHOUT_LOGS = (
    keras.callbacks.Callback,
    keras.callbacks.BackupAndRestore,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.TensorBoard,
    keras.callbacks.TerminateOnNaN,
)
"""Callbacks that take the logs of a batch as they are, also empty ones."""


class Servers(Engine):
    """See the module, and `Engine`."""

    strategy_class: ClassVar[type] = ParameterServerStrategyV2  # also TensorFlow's own, where nothing replaces it
    takes_steps_here = False

    def __init__(self, strategy: Any) -> None:
        SERVERS.begin()
        super().__init__(strategy)

    @property
    def world(self) -> World | None:
        """See `Engine`: the chief is alone among the ranks."""
        world = current_world()
        return None if world.size > 1 else world

    @classmethod
    def check_foreign(cls, model: Any, method: str) -> None:
        """See `Engine`: a model without a strategy would train on the chief of a cluster."""
        if method == "fit":
            check_not_alone(model)

    def check(self, model: Any, method: str, arguments: dict[str, Any]) -> None:
        """See `Engine`. A function in place of data becomes a dataset that stands for what workers read."""
        check(model, method, arguments, self.strategy)
        super().check(model, method, arguments)

    @contextmanager
    def running(self, model: Any, method: str) -> Iterator[None]:
        """See `Engine`: however the call ends, no step is running afterwards."""
        drain(model)  # a callback of a `fit` may evaluate
        try:
            with super().running(model, method):
                yield
            end_pass(model)
        except BaseException:
            cancel(model)
            raise

    def on_batch(self, model: Any, method: str, arguments: dict[str, Any], by_keras: Function) -> Any:
        """See `Engine`."""
        if method != "predict_on_batch":
            return by_keras(**arguments)
        model.make_predict_function()
        [outputs] = model.predict_function([(arguments["x"],)]).wait()
        return tf.nest.map_structure(_as_array, outputs)

    def compiled(self, model: Any, jit_compile: Any, by_keras: Callable[[], Any]) -> Any:
        """See `Engine`."""
        if jit_compile not in (None, False, "auto"):
            _LOGGER.warning(
                "jit_compile=True: XLA cannot compile a step whose variables lie on parameter servers; the step "
                "runs without XLA. Its numbers are the same, but for what tf.random draws, which XLA draws otherwise."
            )
        return by_keras()

    def built(self, model: Any, iterator: Any, data_batch: Any, by_keras: Callable[[], None]) -> None:
        """See `Engine`: from shapes, as far as that goes."""
        build_as_far_as_known(model, shapes_of(iterator, data_batch), self.strategy)

    def function(self, model: Any, step: Function, by_keras: Function) -> Any:
        """See `Engine`."""
        return DealtFunction(model, step)

    def predict_function(self, model: Any, by_keras: Callable[[], Any]) -> Any:
        """See `Engine`."""
        return DealtPrediction(model)

    def reset(self, model: Any) -> None:
        """See `Engine`: all steps have ended."""
        drain(model)
        check_made_after_strategy([*model.variables, *model.metrics_variables])
        for function in (model.train_function, model.test_function):
            if isinstance(function, DealtFunction):
                function.begin()

    def settle(self, model: Any) -> None:
        """See `Engine`."""
        drain(model)

    def epoch_logs(self, model: Any, logs: Any, by_keras: Callable[[Any], Any]) -> Any:
        """See `Engine`: once all its steps have ended."""
        if not isinstance(logs, DispatchedLogs):
            return by_keras(logs)
        end_pass(model)
        # An evaluation that follows resets the metrics.
        return {name: as_it_is(value) for name, value in by_keras(logs.now()).items()}

    def logs_by_now(self, logs: Any) -> Any:
        """See `Engine`: of the steps that have ended."""
        return logs.now() if isinstance(logs, DispatchedLogs) else logs

    def logs_for(self, hook: str, callbacks: Sequence[Any], logs: Any) -> Any:
        """See `Engine`. Who looks at a batch's logs or outputs waits for them; the others let workers take steps."""
        match hook:
            case "on_train_batch_end" | "on_test_batch_end":
                is_empty = isinstance(logs, DispatchedLogs) and not logs
                return logs.of_a_step() if is_empty and any(_looks_at_logs(one, hook) for one in callbacks) else logs
            case "on_predict_batch_end":
                deferred = (logs or {}).get("outputs")
                if isinstance(deferred, Deferred) and any(map(_looks_at_outputs, callbacks)):
                    steps = deferred.wait()
                    return {**logs, "outputs": steps[0] if len(steps) == 1 else tf.nest.map_structure(_joined, *steps)}
            case "on_epoch_end":
                _notice_nan(callbacks, logs)
        return logs

    def weight(self, layer: Any, add: Callable[[], Any]) -> Any:
        """See `Engine`: it may be divided."""
        return made_by_layer(layer, add)

    def before_update(self, optimizer: Any, variables: list[Any] | None) -> None:
        """See `Engine`: slots are made on servers."""
        is_ours = isinstance(self.strategy, ParameterServerStrategy)
        if is_ours and not optimizer.built and variables is not None:
            build_in_scope(optimizer, variables, self.strategy)

    def source(self, opened: Opened, model: Any) -> Source:
        """See `Engine`: the chief reads all of it, and dispatches its batches; or each worker reads its own."""
        del model
        if is_of_workers(opened.dataset):
            return ReadByWorkers(opened)
        source = source_of(opened, reads_by_index=False)
        source.batches = source.whole()
        return source

    def saved(self, model: Any, filepath: Any, write: Callable[[], Any]) -> Any:
        """See `Engine`."""
        drain(model)
        return write()

    def with_all_values(self, model: Any, read: Callable[[], Any]) -> Any:
        """See `Engine`."""
        drain(model)
        return read()

    def exported(self, model: Any, write: Callable[[], Any]) -> Any:
        """See `Engine`: whoever serves the model looks rows up in a variable, not in shards on servers."""
        drain(model)
        with in_one_piece(model):
            return write()


def _notice_nan(callbacks: Sequence[Any], logs: Any) -> None:
    """Keras's `TerminateOnNaN`, which looks at batches, sees the whole epoch.

    At the end of a batch the chief knows the loss of the steps that have ended; of a short epoch, of none.
    """
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.TerminateOnNaN) and not callback.model.stop_training:
            callback.on_batch_end(callback.params["steps"] - 1 if callback.params.get("steps") else 0, logs)


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


def rows() -> list[Seam]:
    """The replacements in Keras, for processes that make a `ParameterServerStrategy`."""
    together = "servers add what several workers bring"
    return [
        *table_seams.rows(),
        Seam(keras.Variable, "assign_add", atomic_updates.added, together, in_graphs=True),
        Seam(keras.Variable, "assign_sub", atomic_updates.subtracted, together, in_graphs=True),
        Seam(
            keras.random.SeedGenerator,
            "next",
            step_trace.drawn_in_dealt_step,
            "each step has a seed of its own",
            in_graphs=True,
        ),
        Seam(compat.trainer_module, "potentially_ragged_concat", dispatched_functions.put_together, "rows in order"),
    ]
