"""What Keras makes of its steps where the ranks divide each of them (`divided_steps.py`).

All ranks begin and end steps together. A step begins with the sum of the ranks' rows. A rank whose data has ended
answers that with `no_more_rows`, and the step takes place on no rank. An execution of several steps
(`steps_per_execution`) that takes fewer, because the data has ended, answers it, too: if that meets others in their
next step, this execution ends the epoch on all ranks, without logs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.cluster.communication import Communication
from paceline.fit.compat import trainer_module
from paceline.fit.divided_steps import DividedStep
from paceline.fit.verification import looked_at
from paceline.fit.whole_batches import WholeBatch, coming_batch
from paceline.strategy import compat
from paceline.strategy.base import SynchronousStrategy
from paceline.strategy.first_use import IN_TRAINER
from paceline.strategy.graph_collectives import as_written
from paceline.strategy.replica_context import CutShort, OutOfData, no_more_rows

Function = Callable[..., Any]


class DividedFunction:
    """What Keras makes of a step, for steps that the ranks divide: one function for each kind of whole batch.

    Args:
        model: Whose step.
        step_function: Of one batch.
        make_function: Keras's, from a step to a function of an iterator.
        strategy: Whose ranks divide it.
    """

    def __init__(
        self, model: Any, step_function: Function, make_function: Function, strategy: SynchronousStrategy
    ) -> None:
        self._model = model
        self._step_function = step_function
        self._make_function = make_function
        self._strategy = strategy
        self._functions: dict[WholeBatch, tuple[DividedStep, Function]] = {}
        self._num_taken = _counter_of_steps() if model.steps_per_execution > 1 else None

    def __call__(self, iterator: Any) -> Any:
        """Takes one execution. Collective."""
        before = _num_taken_by(self._num_taken)
        can_end_apart = self._strategy.world.communication is Communication.MPI
        step, function, is_new = self._step_and_function()
        if is_new and not self._model.run_eagerly and self._strategy.world.verify != "off":
            first, iterator = looked_at(iterator, self._model.steps_per_execution)
            step.verify_on(_without_optionals(first))
        try:
            with IN_TRAINER.replaced(True):
                outputs = function(iterator)
        except (StopIteration, tf.errors.OutOfRangeError) as end:
            if can_end_apart and not _was_told_by_others(end):
                no_more_rows(self._strategy.world)
            _raise_if_cut_short(_num_taken_by(self._num_taken) - before)
            # With several steps in an execution Keras asks for data before each step; what XLA has compiled waits for
            # all of its inputs. In both cases nothing of the step has run.
            if self._num_taken is None and not self._model.jit_compile:
                step.take_without_data()
            raise
        is_cut_short = 0 < _num_taken_by(self._num_taken) - before < self._model.steps_per_execution
        if can_end_apart and is_cut_short and not no_more_rows(self._strategy.world):
            raise CutShort("the data of this rank ended in the middle of an execution of several steps")
        return outputs

    def _step_and_function(self) -> tuple[DividedStep, Function, bool]:
        """Those for the coming batch, and whether they are new."""
        batch = coming_batch()
        is_new = batch not in self._functions
        if is_new:
            step = DividedStep(self._step_function, batch, self._strategy, self._count, lambda: _names(self._model))
            self._functions[batch] = step, self._make_function(step)
        return *self._functions[batch], is_new

    def _count(self, total: Any) -> Any:
        """`total`, once the step that takes place has been counted."""
        if self._num_taken is None:
            return total
        with tf.control_dependencies([total]), tf.control_dependencies([self._num_taken.assign_add(1)]):
            return tf.identity(total)


def _counter_of_steps() -> Any:
    """A variable of this rank, which no model tracks."""
    with tf.init_scope(), tf.device("/device:CPU:0"):
        return compat.ResourceVariable(0, trainable=False, dtype=tf.int64, name="paceline_steps_taken")


def _num_taken_by(counter: Any) -> int:
    """How many steps a counter has counted; 0 without one."""
    return 0 if counter is None else int(counter)


def _raise_if_cut_short(num_taken: int) -> None:
    """Raises `CutShort` if an execution that has come to the end of its data had begun."""
    if num_taken > 0:
        raise CutShort("the data of another rank ended in the middle of an execution of several steps")


def _was_told_by_others(end: BaseException) -> bool:
    """Whether the data of another rank has come to its end, and not this one's."""
    return isinstance(end, OutOfData) or OutOfData.__name__ in str(end)


class DividedPrediction:
    """The step of `predict`, which returns the rows of all ranks: one function for each kind of whole batch."""

    def __init__(self, model: Any, strategy: SynchronousStrategy) -> None:
        self._model = model
        self._strategy = strategy
        self._functions: dict[WholeBatch, Function] = {}

    def __call__(self, batches: Sequence[Any]) -> Any:
        """The outputs of one execution: those of its batches, one after the other. Collective."""
        batch = coming_batch()
        if batch not in self._functions:
            of_execution = self._of_execution(DividedStep(self._model.predict_step, batch, self._strategy))
            is_eager = self._model.run_eagerly
            self._functions[batch] = of_execution if is_eager else tf.function(of_execution, reduce_retracing=True)
        with IN_TRAINER.replaced(True):
            return self._functions[batch](_without_optionals(batches))

    def experimental_get_tracing_count(self) -> int:
        """How many kinds of batches it has been traced for, as `tf.function` says it."""
        return len(self._functions)

    def _of_execution(self, step: DividedStep) -> Function:
        def of_execution(batches: Sequence[Any]) -> Any:
            outputs = [self._strategy.run(step, args=(data,)) for data in batches]
            return keras.tree.map_structure(lambda *parts: _concatenated(parts), *outputs)

        return as_written(of_execution)


def _names(model: Any) -> dict[int, str]:
    """What Keras calls the variables of a model and its optimizer, by the identity of TensorFlow's."""
    optimizers = [model.optimizer] if model.optimizer is not None else []
    return {id(each.value): each.path for owner in [model, *optimizers] for each in owner.variables}


def _concatenated(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else trainer_module.concat(parts)


def _without_optionals(batches: Sequence[Any]) -> Any:
    """What Keras's own step does to components that are not there."""
    return keras.tree.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, batches)
