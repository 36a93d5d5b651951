"""The engine under every synchronous Paceline strategy: one process per replica, one device per process.

`tf.distribute` splits a strategy into a public face and an `extended` that does the work. This one keeps TensorFlow's
single-device extended for what happens on this rank, and replaces what has to do with the others: the replica context,
reductions, gathering, how datasets are shared out, and the value that a new variable starts from.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.comm.world import World
from paceline.data.local_batches import local_batches, mark_as_local
from paceline.strategy import compat
from paceline.strategy.replica_context import PacelineReplicaContext, StepRows
from paceline.strategy.world_collectives import graph_collectives_of


class PacelineExtended(compat.OneDeviceExtended):  # type: ignore[misc]  # a TensorFlow class, untyped
    """One rank of a synchronous data-parallel group.

    Args:
        container_strategy: The public face.
        device: This rank's device, e.g. ``"/cpu:0"``.
        world: This process's place in the job.
        broadcast_new_variables: Whether a variable made eagerly in the strategy's scope starts from the chief's
            value (a collective, as in `tf.distribute`).
    """

    def __init__(self, container_strategy: Any, device: str, world: World, *, broadcast_new_variables: bool) -> None:
        super().__init__(container_strategy, device)
        self.world = world
        self.collectives = graph_collectives_of(world)
        self._broadcast_new_variables = broadcast_new_variables and world.size > 1
        self._step_rows: StepRows | None = None

    # What a replica is and does.

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        outermost = self._step_rows is None
        rows = StepRows(_rows_of((args, kwargs)), self.collectives) if self._step_rows is None else self._step_rows
        context = PacelineReplicaContext(self._container_strategy(), self.world.rank, rows, self.collectives)
        self._step_rows = rows
        try:
            with tf.device(self._device), context:
                return fn(*args, **kwargs)
        finally:
            if outermost:
                self._step_rows = None

    def _use_merge_call(self) -> bool:
        # False keeps Keras's optimizers in the replica context, where conditionals (accumulation, loss scale) work.
        return False

    @property
    def _num_replicas_in_sync(self) -> int:
        return self.world.size

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        del replica_id_in_sync_group
        return 0

    # Variables.

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        variable = super()._create_variable(next_creator, **kwargs)
        in_step = self._step_rows is not None  # a model that builds itself in its first step, alike on all ranks
        if (self._broadcast_new_variables or (in_step and self.world.size > 1)) and tf.executing_eagerly():
            [chiefs] = self.collectives.broadcast([variable])
            variable.assign(chiefs)
        return variable

    def _validate_colocate_with_variable(self, colocate_with_variable: Any) -> None:
        # Every variable of this process is on its one device, also those of a model built before its strategy.
        del colocate_with_variable

    # Values of all replicas.

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        del destinations, options
        if self.world.size == 1:
            return value
        flat = tf.nest.flatten(value)
        totals = self.collectives.all_reduce(flat)
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            totals = [total / tf.cast(self.world.size, total.dtype) for total in totals]
        return tf.nest.pack_sequence_as(value, totals)

    def _gather_to_implementation(self, value: Any, destinations: Any, axis: int, options: Any) -> Any:
        del destinations, options
        tensor = tf.convert_to_tensor(value)
        if axis == 0:
            return self.collectives.all_gather(tensor)
        order = [axis, *[other for other in range(tensor.shape.rank) if other != axis]]
        gathered = self.collectives.all_gather(tf.transpose(tensor, order))
        return tf.transpose(gathered, [order.index(axis_) for axis_ in range(tensor.shape.rank)])

    # Data.

    def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
        del options
        return local_batches(dataset, self.world.rank, self.world.size)

    def _distribute_datasets_from_function(self, dataset_fn: Callable[[Any], Any], options: Any) -> Any:
        del options
        context = tf.distribute.InputContext(
            num_input_pipelines=self.world.size,
            input_pipeline_id=self.world.rank,
            num_replicas_in_sync=self.world.size,
        )
        return mark_as_local(dataset_fn(context))

    def _experimental_distribute_values_from_function(self, value_fn: Callable[[Any], Any]) -> Any:
        return value_fn(
            tf.distribute.experimental.ValueContext(
                replica_id_in_sync_group=self.world.rank, num_replicas_in_sync=self.world.size
            )
        )

    # Who writes.

    @property
    def should_checkpoint(self) -> bool:
        """The chief writes checkpoints."""
        return self.world.rank == 0

    @property
    def should_save_summary(self) -> bool:
        """The chief writes summaries."""
        return self.world.rank == 0


def _rows_of(arguments: Any) -> Any:
    """Rows of the first batched tensor in a structure of arguments, int32 scalar; None without one.

    Keras weighs its loss by the first input's rows, too.
    """
    for leaf in tf.nest.flatten(arguments):
        if isinstance(leaf, tf.RaggedTensor):
            return tf.cast(leaf.nrows(), tf.int32)
        if isinstance(leaf, tf.SparseTensor):
            return tf.cast(leaf.dense_shape[0], tf.int32)
        if tf.is_tensor(leaf) and not isinstance(leaf, tf.Variable) and leaf.shape.rank != 0:
            return tf.shape(leaf)[0]
        if hasattr(leaf, "__array_interface__") and getattr(leaf, "ndim", 0) > 0:
            return tf.constant(len(leaf), tf.int32)
    return None
