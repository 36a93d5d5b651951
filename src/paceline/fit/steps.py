"""The step of a trainer: begins and ends on all ranks together.

    count rows over ranks ─► the step itself ─► put the numbers that it returns together
      └ none left, or some rank's data has ended: the epoch ends here, on every rank

Counting comes first, before anything is changed: a rank that has run out of data answers this message in place of a
step (`no_more_rows`), so all ranks take the same number of steps.

An execution of several steps (`steps_per_execution`) that takes fewer, because the data has ended, answers it, too: if
that meets others in their next step, this execution ends the epoch on all ranks, without logs.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.cluster.communication import Communication
from paceline.fit.gradients import is_users
from paceline.fit.metrics import is_of_all_ranks
from paceline.fit.replica import current_replica, taking_place
from paceline.fit.shares import as_tensor, is_share, share_of
from paceline.fit.strategies import paceline_strategy_of
from paceline.strategy import compat
from paceline.strategy.replica_context import CutShort, OutOfData, PacelineReplicaContext, no_more_rows
from paceline.strategy.row_errors import FAULTS_OF_SHAPES, raise_if_rows_explain, specs_of

Function = Callable[..., Any]


def taken_together(keras_make_function: Function) -> Function:
    """Keras's `TensorFlowTrainer._make_function`, whose steps all ranks begin and end together. Collective."""

    def _make_function(self: Any, step_function: Function) -> Any:
        counts_rows = False
        is_training = getattr(step_function, "__name__", "") == self.train_step.__name__  # others have wrapped it, too
        num_taken = counter_of_steps() if self.steps_per_execution > 1 else None
        specs: Any = ()

        @functools.wraps(step_function)
        def step(data: Any) -> Any:
            nonlocal counts_rows, specs
            replica = current_replica()
            if replica is None:
                return step_function(data)
            replica.rows.of_trainer = True
            replica.rows.is_training = is_training
            if not replica.rows.known:
                return _numbers_of_all_ranks(step_function(data), replica)
            counts_rows = True
            specs = specs_of((data,))
            count = replica.rows.count()
            if num_taken is not None:
                with tf.control_dependencies([count]):
                    num_taken.assign_add(1, read_value=False)
            return _numbers_of_all_ranks(step_function(_after(count, data)), replica)

        keras_function = keras_make_function(self, step)
        strategy = paceline_strategy_of(self)
        if strategy is None or strategy.group.size == 1 or strategy.world.communication is not Communication.MPI:
            return keras_function
        world = strategy.world

        def function(iterator: Any) -> Any:
            before = num_taken_by(num_taken)
            try:
                outputs = keras_function(iterator)
            except (StopIteration, tf.errors.OutOfRangeError) as end:
                if counts_rows and not was_told_by_others(end):
                    no_more_rows(world)
                raise_if_cut_short(num_taken_by(num_taken) - before)
                raise
            except FAULTS_OF_SHAPES:
                raise_if_rows_explain(
                    lambda data: strategy.extended.call_unexplained(step_function, (data,), {}),
                    specs,
                    world,
                    name=getattr(step_function, "__name__", "the step"),
                    num_rows=strategy.extended.collectives.latest_own_rows,
                )
                raise
            is_cut_short = 0 < num_taken_by(num_taken) - before < self.steps_per_execution
            if is_cut_short and not no_more_rows(world):
                raise CutShort("the data of this rank ended in the middle of an execution of several steps")
            return outputs

        return function

    return _make_function


def counter_of_steps() -> Any:
    """A variable of this rank, which no model tracks."""
    with tf.init_scope(), tf.device("/device:CPU:0"):
        return compat.ResourceVariable(0, trainable=False, dtype=tf.int64, name="paceline_steps_taken")


def num_taken_by(counter: Any) -> int:
    """How many steps a counter has counted; 0 without one."""
    return 0 if counter is None else int(counter)


def raise_if_cut_short(num_taken: int) -> None:
    """Raises `CutShort` if an execution that has come to the end of its data had begun."""
    if num_taken > 0:
        raise CutShort("the data of another rank ended in the middle of an execution of several steps")


def _after(count: Any, data: Any) -> Any:
    """`data`, there once the rows have been counted: what follows from them does not happen in a step that does not.

    Only the data: control edges to every operation of the step would keep TensorFlow from fusing them. What does not
    follow from the data waits by itself: counting steps (`gradients.py`) and drawing seeds (`drawn_in_step`).
    """

    def there(leaf: Any) -> Any:
        return tf.identity(leaf) if tf.is_tensor(leaf) else leaf

    with tf.control_dependencies([count]):
        return tf.nest.map_structure(there, data, expand_composites=True)


def drawn_in_step(keras_next: Function) -> Function:
    """Keras's `SeedGenerator.next`, which moves on in steps that take place."""

    def next_(self: Any, *args: Any, **kwargs: Any) -> Any:
        with taking_place():
            return keras_next(self, *args, **kwargs)

    return next_


def was_told_by_others(end: BaseException) -> bool:
    """Whether the data of another rank has come to its end, and not this one's."""
    return isinstance(end, OutOfData) or OutOfData.__name__ in str(end)


def _numbers_of_all_ranks(logs: Any, replica: PacelineReplicaContext) -> Any:
    """What a step returns, over all ranks: metrics are already; a loss is summed; any other number is a rank's own.

    That one counts as much as the rank's share of the rows, an integer as the chief has it.
    """
    leaves = [leaf if is_of_all_ranks(leaf) else as_tensor(leaf) for leaf in tf.nest.flatten(logs)]
    if tf.executing_eagerly():
        leaves = _with_different_numbers_as_tensors(leaves, replica)
    own = [index for index, leaf in enumerate(leaves) if tf.is_tensor(leaf) and not is_of_all_ranks(leaf)]
    parts = [_part_of(leaves[index], replica) for index in own]
    for index, total in zip(own, replica.rows.statistics.summed_with(parts), strict=True):
        leaves[index] = total
    return tf.nest.pack_sequence_as(logs, leaves)


def _with_different_numbers_as_tensors(leaves: list[Any], replica: PacelineReplicaContext) -> list[Any]:
    """In eager steps, Python's numbers (`float(loss)`) are tensors that ranks may differ in; those that do, again.

    Nothing tells what they are of. What all ranks have, such as the result of a metric, is taken as it is. Collective.
    """
    numbers = {
        index: np.asarray(leaf) for index, leaf in enumerate(leaves) if isinstance(leaf, (int, float, np.generic))
    }
    numbers = {index: number for index, number in numbers.items() if number.dtype.kind in "iuf"}
    if numbers:
        own = tf.constant([[number.astype(np.float64) for number in numbers.values()]])
        everybodys = replica.collectives.all_gather(own).numpy()
        for (index, number), ranks in zip(numbers.items(), everybodys.T, strict=True):
            if len({value.tobytes() for value in ranks}) > 1:
                leaves[index] = tf.constant(number)
    return leaves


def _part_of(value: Any, replica: PacelineReplicaContext) -> Any:
    if not value.dtype.is_floating:
        return value if replica.rank == 0 else tf.zeros_like(value)
    if not replica.rows.known:
        return value if is_share(value) else value / tf.cast(replica.num_replicas_in_sync, value.dtype)
    return share_of(value, replica.rows)


def of_keras(keras_train_step: Function) -> Function:
    """Keras's `TensorFlowTrainer.train_step`: what its tape gives goes into the optimizer as it is.

    An optimizer of a user's may change it there (clip it by its norm): it gets the gradients of the global batch.
    """

    def train_step(self: Any, data: Any) -> Any:
        replica = current_replica()
        if replica is None:
            return keras_train_step(self, data)
        replica.rows.in_keras_step = not is_users(self.optimizer)
        try:
            return keras_train_step(self, data)
        finally:
            replica.rows.in_keras_step = False

    return train_step
