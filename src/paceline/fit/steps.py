"""A trainer's step: how it begins and ends on all ranks together.

    count rows over ranks ─► the step itself ─► put the numbers that it returns together
      └ none left, or some rank's data has ended: the epoch ends here, on every rank

Counting comes first, before anything is changed: a rank that has run out of data answers this message in place of a
step (`no_more_rows`), so all ranks take the same number of steps.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.cluster.communication import Communication
from paceline.comm.communicator import Communicator
from paceline.fit.metrics import is_of_all_ranks
from paceline.fit.replica import current_replica
from paceline.fit.shares import is_share
from paceline.fit.strategies import paceline_strategy_of
from paceline.strategy.replica_context import OutOfData, PacelineReplicaContext, no_more_rows

Function = Callable[..., Any]


def taken_together(keras_make_function: Function) -> Function:
    """Keras's `TensorFlowTrainer._make_function`, whose steps all ranks begin and end together. Collective."""

    def _make_function(self: Any, step_function: Function) -> Any:
        counts_rows = False

        @functools.wraps(step_function)
        def step(data: Any) -> Any:
            nonlocal counts_rows
            replica = current_replica()
            if replica is None:
                return step_function(data)
            replica.rows.of_trainer = True
            if not replica.rows.known:
                return _numbers_of_all_ranks(step_function(data), replica)
            counts_rows = True
            return _numbers_of_all_ranks(step_function(_after(replica.rows.count(), data)), replica)

        keras_function = keras_make_function(self, step)
        strategy = paceline_strategy_of(self)
        if strategy is None or strategy.world.size == 1 or strategy.world.communication is not Communication.MPI:
            return keras_function
        world = strategy.world

        def function(iterator: Any) -> Any:
            try:
                return keras_function(iterator)
            except (StopIteration, tf.errors.OutOfRangeError) as end:
                if counts_rows:
                    has_ended = not _was_told_by_others(end)
                    if not has_ended or not no_more_rows(world.communicator):
                        _take_back_the_step(self, world.communicator, has_ended)
                raise

        return function

    return _make_function


def _after(count: Any, data: Any) -> Any:
    """`data`, there once the rows have been counted: what follows from them does not happen in a step that does not.

    Only the data: control edges to every operation of the step would keep TensorFlow from fusing them.
    """

    def there(leaf: Any) -> Any:
        return tf.identity(leaf) if tf.is_tensor(leaf) else leaf

    with tf.control_dependencies([count]):
        return tf.nest.map_structure(there, data, expand_composites=True)


def _was_told_by_others(end: BaseException) -> bool:
    return isinstance(end, OutOfData) or OutOfData.__name__ in str(end)


def _take_back_the_step(model: Any, communicator: Communicator, has_ended: bool) -> None:
    """After a step that some ranks had begun when others had no more data: all take the state of one that had not.

    What depends on the data has not happened anywhere, but seeds may have been drawn and steps counted. Collective.
    """
    flags = communicator.all_gather(np.array([has_ended]))
    root = next(rank for rank, [ended] in enumerate(flags) if ended)
    of_metrics = {id(variable) for variable in model.metrics_variables}
    state = [variable for variable in model.non_trainable_variables if id(variable) not in of_metrics]
    if getattr(model, "optimizer", None) is not None:
        state += model.optimizer.variables
    values = [variable.numpy() for variable in state]
    if communicator.rank != root:
        values = [np.zeros_like(value) for value in values]
    for variable, value in zip(state, communicator.all_reduce(values), strict=True):
        variable.assign(value)


def _numbers_of_all_ranks(logs: Any, replica: PacelineReplicaContext) -> Any:
    """What a step returns, over all ranks: metrics are already; a loss is summed; any other number is a rank's own.

    That one counts as much as the rank's share of the rows, an integer as the chief has it.
    """
    leaves = tf.nest.flatten(logs)
    own = [index for index, leaf in enumerate(leaves) if tf.is_tensor(leaf) and not is_of_all_ranks(leaf)]
    parts = [_part_of(leaves[index], replica) for index in own]
    for index, total in zip(own, replica.rows.statistics.summed_with(parts), strict=True):
        leaves[index] = total
    return tf.nest.pack_sequence_as(logs, leaves)


def _part_of(value: Any, replica: PacelineReplicaContext) -> Any:
    if not value.dtype.is_floating:
        return value if replica.replica_id_in_sync_group == 0 else tf.zeros_like(value)
    if is_share(value):
        return value
    if not replica.rows.known:
        return value / tf.cast(replica.num_replicas_in_sync, value.dtype)
    return tf.math.multiply_no_nan(value, replica.rows.share(value.dtype))
