"""Engines: how a model trains under one kind of strategy. The one place that asks which strategy a model has.

    replaced methods of Keras ─► engine_of(model) ─► Engine         plain Keras: no strategy, or one of TensorFlow's
                                                 ─► Replicas        `fit/replicas.py`: the ranks divide each step
                                                 ─► Servers         `parameter_server/engine.py`: workers make the steps
                                                 ─► Pipeline        `pipeline/engine.py`: a step goes through stages

`Engine` does in each method what plain Keras does, and the others say what differs. What Keras would do is the
function `by_keras`, with which a method ends if nothing else is to be done. An engine has no state but its strategy, so
one is made for each question, and models remember nothing of engines.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import tensorflow as tf

from paceline.comm.group import Group
from paceline.comm.step_account import Totals
from paceline.comm.world import World, current_world
from paceline.fit.run import telling_of_traces
from paceline.fit.snapshots.model_state import model_parts
from paceline.fit.sources.kinds import source_of
from paceline.fit.sources.source import Opened, Source
from paceline.fit.training_apart import refuse_training_apart
from paceline.resilience.parts import Part
from paceline.strategy.as_one_worker import is_as_one_worker

Function = Callable[..., Any]


class Engine:
    """Plain Keras, under no strategy or one of TensorFlow's own.

    Args:
        strategy: The model's; None: it has none.
    """

    strategy_class: ClassVar[type] = object
    """Whose models it trains."""
    reads_alike: ClassVar[bool] = False
    """Whether all ranks iterate over the same data."""
    saves_together: ClassVar[bool] = False
    """Whether all ranks take part when the model is saved, because none has all of it."""
    takes_steps_here: ClassVar[bool] = True
    """Whether this process computes whole steps, of all rows or its own."""

    def __init__(self, strategy: Any = None) -> None:
        self.strategy = strategy

    @property
    def world(self) -> World | None:
        """The ranks whose calls of `fit` are one: they take snapshots together. None: each trains by itself."""
        world = current_world()
        return None if self.strategy is not None or world.size > 1 else world

    @property
    def models(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each model that the world trains."""
        return () if self.world is None else self.world.models

    @property
    def group(self) -> Group | None:
        """All ranks that take the same steps, and so must decide alike; None: there are no others."""
        return None

    @property
    def replicas(self) -> Group | None:
        """The ranks that share the rows of a batch; None: there are no others."""
        return None

    # A call of `fit`, `evaluate` or `predict`.

    @classmethod
    def check_foreign(cls, model: Any, method: str) -> None:
        """Refuses a call of another engine's model that must not train beside models of this one.

        Raises:
            ConfigurationError, ValueError: it must not train like this.
        """

    def check(self, model: Any, method: str, arguments: dict[str, Any]) -> None:
        """Refuses what this engine cannot do, before anything else is done; it may change the arguments.

        Plain Keras in a job of several workers: each would train a model of its own.

        Args:
            model: Whose method is called.
            method: `fit`, `evaluate` or `predict`.
            arguments: Of the call, without defaults.

        Raises:
            ConfigurationError, ValueError, RuntimeError: it cannot do that.
        """
        if method == "fit" and self.group is None:
            refuse_training_apart(self.strategy)

    @contextmanager
    def running(self, model: Any, method: str) -> Iterator[None]:
        """Around a call of `fit`, `evaluate`, `predict`, or one of their like on one batch."""
        del model
        if method == "fit" and self.group is None:
            with current_world().training_alone():
                yield
        else:
            yield

    def on_batch(self, model: Any, method: str, arguments: dict[str, Any], by_keras: Function) -> Any:
        """`train_on_batch`, `test_on_batch` or `predict_on_batch`.

        Args:
            model: Whose method is called.
            method: Its name.
            arguments: Of the call, without defaults.
            by_keras: Keras's; takes the arguments.
        """
        del model, method
        return by_keras(**arguments)

    # Of a model.

    def compiled(self, model: Any, jit_compile: Any, by_keras: Callable[[], Any]) -> Any:
        """`model.compile`.

        Args:
            model: Whose method is called.
            jit_compile: What it was given.
            by_keras: Compiles.
        """
        del model, jit_compile
        return by_keras()

    def built(self, model: Any, iterator: Any, data_batch: Any, by_keras: Callable[[], None]) -> None:
        """`_maybe_symbolic_build`, before the first step over an iterator or of a batch.

        Args:
            model: To be built.
            iterator: The epoch iterator; None: the step is of `data_batch`.
            data_batch: A batch.
            by_keras: Builds, from a batch that it draws.
        """
        del model, iterator, data_batch
        by_keras()

    def words_of_steps(self, model: Any, totals: Totals) -> str:
        """What the chief's line about the time of steps says besides. The chief alone calls: no message may be needed.

        Args:
            model: That is trained.
            totals: The time of some steps; maybe of none.
        """
        del model, totals
        return ""

    def function(self, model: Any, step: Function, by_keras: Function) -> Any:
        """`_make_function`: from a step to what Keras's loops call for each execution.

        Args:
            model: Whose step.
            step: `train_step` or `test_step`.
            by_keras: From a step to a function of an iterator.
        """
        del model
        return by_keras(telling_of_traces(step))

    def predict_function(self, model: Any, by_keras: Callable[[], Any]) -> Any:
        """`make_predict_function`, where one is to be made.

        Args:
            model: Whose.
            by_keras: Makes Keras's, and returns it.
        """
        del model
        return by_keras()

    def reset(self, model: Any) -> None:
        """The model's metrics are about to be reset, with which epochs and evaluations begin."""

    def settle(self, model: Any) -> None:
        """Waits until no step of `model` runs anywhere. Snapshots and files come after that.

        Raises:
            Exception: what a step has raised.
        """

    def epoch_logs(self, model: Any, logs: Any, by_keras: Callable[[Any], Any]) -> Any:
        """`_get_metrics_result_or_logs`: the logs of an epoch or an evaluation.

        Args:
            model: Whose.
            logs: Of the last step.
            by_keras: From the logs of a step to those of the epoch.
        """
        del model
        return by_keras(logs)

    def logs_by_now(self, logs: Any) -> Any:
        """The logs of a step as a snapshot has them."""
        return logs

    def logs_for(self, hook: str, callbacks: Sequence[Any], logs: Any) -> Any:
        """The logs that callbacks are given.

        Args:
            hook: Which of their hooks is about to be called.
            callbacks: All of them.
            logs: What Keras gives them.
        """
        del hook, callbacks
        return logs

    # Variables.

    def weight(self, layer: Any, add: Callable[[], Any]) -> Any:
        """A layer makes a weight.

        Args:
            layer: Which.
            add: Keras's `add_weight`.
        """
        del layer
        return add()

    def before_update(self, optimizer: Any, variables: list[Any] | None) -> None:
        """An optimizer is about to be applied.

        Args:
            optimizer: Which.
            variables: To which weights; None: to those that it was built for.
        """

    # Data.

    def source(self, opened: Opened, model: Any) -> Source:
        """What this process reads of data.

        Args:
            opened: By Keras.
            model: Whose `predict` reads them, else None.
        """
        del model
        source, is_distributed = source_of(opened), isinstance(opened.dataset, tf.distribute.DistributedDataset)
        if self.strategy is not None and not is_distributed:  # there is none in the trace of one worker's step
            source.batches = self.strategy.experimental_distribute_dataset(source.alone())
        return source

    # Snapshots and files.

    def parts(self, model: Any, *, speaks: bool) -> list[Part]:
        """What a snapshot has of the model, its optimizer and its metrics.

        Args:
            model: Which.
            speaks: Whether this rank says what all ranks that train the model see.
        """
        return model_parts(model, is_chief=speaks)

    def saved(self, model: Any, filepath: Any, write: Callable[[], Any]) -> Any:
        """A file of the model is written. Collective if `saves_together`.

        Args:
            model: Which.
            filepath: Where to.
            write: Writes it, and may read every variable.
        """
        del model, filepath
        return write()

    def with_all_values(self, model: Any, read: Callable[[], Any]) -> Any:
        """Something reads every variable of the model. Collective if `saves_together`.

        Args:
            model: Which.
            read: Reads them.
        """
        del model
        return read()

    def exported(self, model: Any, write: Callable[[], Any]) -> Any:
        """The model is exported for serving.

        Args:
            model: Which.
            write: Exports it.
        """
        del model
        return write()

    def loaded(self, model: Any, read: Callable[[], Any]) -> Any:
        """Weights of the model are read from a file.

        Args:
            model: Which.
            read: Reads them, and assigns each variable.
        """
        del model
        return read()


_engines: dict[type, type[Engine]] = {}


def register(engine: type[Engine]) -> None:
    """From now on `engine` trains the models of its class of strategies; those of a subclass may have another one."""
    _engines[engine.strategy_class] = engine


def engine_of(model: Any) -> Engine:
    """The engine that trains `model`.

    It is that of the strategy in whose scope the model was made. One that was made in none, and is used in the scope of
    replicas, trains with them: Keras gives it their strategy. Whatever is no model of Keras's has plain Keras's engine.
    """
    own = getattr(model, "_distribute_strategy", None)
    if own is not None:
        return engine_for(own)
    in_scope = engine_for(tf.distribute.get_strategy()) if hasattr(model, "distribute_strategy") else Engine()
    return in_scope if in_scope.reads_alike and in_scope.takes_steps_here else Engine()


def engine_for(strategy: Any) -> Engine:
    """The engine of models made in the scope of `strategy`; plain Keras's while one worker's step is traced."""
    if strategy is None or is_as_one_worker():
        return Engine()
    for class_ in type(strategy).__mro__:
        if class_ in _engines:
            return _engines[class_](strategy)
    return Engine(strategy)


def check_foreign(model: Any, method: str) -> None:
    """Refuses a call of a model that must not train beside another engine's.

    Raises:
        ConfigurationError, ValueError: that is so.
    """
    own = engine_of(model)
    for engine in _engines.values():
        if type(own) is not engine:
            engine.check_foreign(model, method)


def check_call(model: Any, method: str, arguments: dict[str, Any]) -> None:
    """Refuses a call of `fit`, `evaluate` or `predict` that its engine, or another one, cannot allow.

    Raises:
        ConfigurationError, ValueError, RuntimeError: that is so.
    """
    check_foreign(model, method)
    engine_of(model).check(model, method, arguments)
