"""The engine under every synchronous Paceline strategy: one process per replica, one device per process.

`tf.distribute` splits a strategy into a public face and an `extended` that does the work. This one keeps TensorFlow's
single-device extended for what happens on this rank, and replaces what has to do with the others: the replica context,
reductions, gathering, how datasets are shared out, and the value that a new variable starts from.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from paceline.comm.counted_group import CountedGroup
from paceline.comm.world import World
from paceline.data.own_rows.local_batches import local_batches, mark_as_local
from paceline.data.own_rows.uneven import every_nth_batch, followed_by_empty_batches, shapes_of_another
from paceline.strategy import compat, nested_functions, operation_seeds
from paceline.strategy.as_one_worker import is_as_one_worker
from paceline.strategy.bridged_collectives import graph_collectives_of
from paceline.strategy.first_use import IN_TRAINER, LOOPS
from paceline.strategy.reductions import broadcast, gathered, reduced
from paceline.strategy.replica_context import PacelineReplicaContext, StepRows
from paceline.strategy.row_errors import FAULTS_OF_SHAPES, raise_if_rows_explain, specs_of
from paceline.strategy.variables import as_distributed, distributed_variable, is_made_by_keras, local_part

_ONLY_LOCAL_REPLICA = 0
_PER_REPLICA = tf.distribute.InputReplicationMode.PER_REPLICA


class PacelineExtended(compat.OneDeviceExtended):  # type: ignore[misc]  # a TensorFlow class, untyped
    """One rank of a synchronous data-parallel group.

    Args:
        container_strategy: The public face.
        device: This rank's device, e.g. ``"/cpu:0"``.
        world: This process's place in the job.
        group: The replicas: an axis of `world`.
        broadcast_new_variables: Whether a variable made eagerly in the strategy's scope starts from the chief's
            value (a collective, as in `tf.distribute`).
    """

    def __init__(
        self, container_strategy: Any, device: str, world: World, group: CountedGroup, *, broadcast_new_variables: bool
    ) -> None:
        super().__init__(container_strategy, device)
        self.world = world
        self.group = group
        """The replicas."""
        self.collectives = graph_collectives_of(world, group)
        self._broadcast_new_variables = broadcast_new_variables and group.size > 1
        self._step_rows: StepRows | None = None
        """The row counts of the step that `run` has called last."""
        LOOPS.before(nested_functions.install)
        self._lifted: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """For each `tf.function` given to `run`, the graph that holds the whole of its step."""

    # What a replica is and does.

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.group.size > 1 and not IN_TRAINER.value:
            LOOPS.begin()
        if not isinstance(fn, tf.types.experimental.PolymorphicFunction):
            return self._call_as_replica(fn, args, kwargs)
        # A trace of `fn` by itself would keep the row counts of the step that it was made in.
        if not tf.executing_eagerly():
            return self._call_as_replica(compat.for_graphs(fn), args, kwargs)
        return self.call_as_own_graph(fn, args, kwargs)

    def call_as_own_graph(self, fn: Any, args: Any, kwargs: Any) -> Any:
        """Calls a `tf.function` as a step of its own: a graph that counts the rows of these arguments."""
        if fn not in self._lifted:
            self._lifted[fn] = self._as_one_graph(fn)
        around, self._step_rows = self._step_rows, None
        try:
            return nested_functions.call_apart(self._lifted[fn], args, kwargs)
        finally:
            self._step_rows = around

    def _as_one_graph(self, function: Any) -> Any:
        converted = compat.for_graphs(function)
        return tf.function(
            lambda args, kwargs: self._call_as_replica(converted, args, kwargs), autograph=False, reduce_retracing=True
        )

    def _call_as_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        rows = self._step_rows or StepRows(_rows_of((args, kwargs)), self.group.size, self.collectives)
        if self._step_rows is not None:
            return self._call_in_context(fn, args, kwargs, rows)
        try:
            return self._call_in_context(fn, args, kwargs, rows)
        except FAULTS_OF_SHAPES:
            if not IN_TRAINER.value:  # that has one worker's rows, so these explain nothing
                raise_if_rows_explain(
                    lambda *again: self.call_unexplained(fn, *again),
                    specs_of((args, kwargs)),
                    self.world,
                    name=getattr(fn, "__name__", "the step"),
                )
            raise

    def call_unexplained(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Calls `fn` as a step of this rank; an error of its own is left as it is."""
        rows = StepRows(_rows_of((args, kwargs)), self.group.size, self.collectives)
        with self._container_strategy().scope():
            return self._call_in_context(fn, args, kwargs, rows)

    def _call_in_context(self, fn: Callable[..., Any], args: Any, kwargs: Any, rows: StepRows) -> Any:
        around, context = (
            self._step_rows,
            PacelineReplicaContext(self._container_strategy(), self.group.rank, rows, self.collectives),
        )
        self._step_rows = rows
        try:
            with tf.device(self._device), context, operation_seeds.of_rank(self.group.rank):
                results = fn(*args, **kwargs)
                if around is None:
                    rows.statistics.settle()
                return results
        finally:
            self._step_rows = around
            context.leave()

    def _use_merge_call(self) -> bool:
        # False keeps Keras's optimizers in the replica context, where conditionals (accumulation, loss scale) work.
        return False

    @property
    def _num_replicas_in_sync(self) -> int:
        return 1 if is_as_one_worker() else self.group.size

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        del replica_id_in_sync_group
        return 0

    # Variables.

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        kwargs.pop("colocate_with", None)  # every variable of this process is on its one device

        def create(**arguments: Any) -> Any:
            if self.group.size > 1 and self._step_rows is not None and not tf.executing_eagerly():
                arguments["initial_value"] = self._chiefs(arguments.get("initial_value"), arguments.get("dtype"))
            with tf.device(self._device):
                return self._with_chiefs_value(next_creator(**arguments))

        if is_made_by_keras():
            if kwargs.get("synchronization") == tf.VariableSynchronization.AUTO:
                kwargs["synchronization"] = tf.VariableSynchronization.ON_WRITE  # what it means in any strategy
            return create(**kwargs)
        return distributed_variable(self._container_strategy(), create, **kwargs)

    def _chiefs(self, initial_value: Any, dtype: Any) -> Any:
        """What a variable made in the graph of a step starts from: drawn there, its value is another on each rank.

        It is made what the variable wants (`dtype`, None: any) here, as TensorFlow would: a tensor cannot be, later.
        """
        if initial_value is None or hasattr(initial_value, "checkpoint_position"):  # comes from a file
            return initial_value
        if callable(initial_value):
            return lambda: self._chiefs(initial_value(), dtype)
        return self.collectives.broadcast([tf.convert_to_tensor(initial_value, dtype)])[0]

    def _with_chiefs_value(self, variable: Any) -> Any:
        in_step = self._step_rows is not None  # a model that builds itself in its first step, alike on all ranks
        shared = self._broadcast_new_variables or (in_step and self.group.size > 1)
        # Without a value: a SavedModel is being loaded.
        if shared and tf.executing_eagerly() and variable.is_initialized():
            [chiefs] = self.collectives.broadcast([variable])
            variable.assign(chiefs)
        return variable

    def _validate_colocate_with_variable(self, colocate_with_variable: Any) -> None:
        # Any will do, also one of a model built before its strategy.
        del colocate_with_variable

    def _update(self, var: Any, fn: Callable[..., Any], args: Any, kwargs: Any, group: bool) -> Any:
        return self._update_non_slot(None, fn, (local_part(var), *args), kwargs, group)

    def _update_non_slot(self, colocate_with: Any, fn: Callable[..., Any], args: Any, kwargs: Any, group: bool) -> Any:
        del colocate_with
        with tf.device(self._device), compat.UpdateContext(_ONLY_LOCAL_REPLICA):
            result = fn(*args, **kwargs)
        return result if group else tf.nest.map_structure(self._local_results, result)

    def read_var(self, replica_local_var: Any) -> Any:
        """A variable's value over all ranks, as a tensor. Collective if its `synchronization` is ON_READ."""
        return tf.identity(replica_local_var)

    # Values of all replicas.

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        del destinations, options
        local = [local_part(leaf) for leaf in tf.nest.flatten(value)]
        totals = reduced(self.collectives, self.group.size, reduce_op, local)
        return tf.nest.pack_sequence_as(value, totals)

    def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        # In one message.
        return self._reduce_to(reduce_op, [value for value, _ in value_destination_pairs], None, options)

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        del destinations
        return tensor if isinstance(tensor, (int, float)) else broadcast(self.collectives, self.group.rank, tensor)

    def _gather_to_implementation(self, value: Any, destinations: Any, axis: Any, options: Any) -> Any:
        del destinations, options
        return gathered(self.collectives, local_part(value), axis)

    def _local_results(self, value: Any) -> tuple[Any]:
        return (tf.nest.map_structure(local_part, value),)

    # Data.

    def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
        _check_options(options)
        if options is not None and options.experimental_replication_mode == _PER_REPLICA:
            raise NotImplementedError(
                "InputReplicationMode.PER_REPLICA is for distribute_datasets_from_function, which calls its function "
                "once per replica anyway; experimental_distribute_dataset takes one dataset of global batches."
                " [distribute-api]"
            )
        return as_distributed(local_batches(dataset, self.group.rank, self.group.size))

    def _distribute_datasets_from_function(self, dataset_fn: Callable[[Any], Any], options: Any) -> Any:
        _check_options(options)
        rank, size = self.group.rank, self.group.size
        if self._container_strategy().one_input_pipeline:
            dataset = every_nth_batch(dataset_fn(tf.distribute.InputContext(1, 0, size)), rank, size)
        else:
            dataset = self._as_long_as_the_longest(dataset_fn(tf.distribute.InputContext(size, rank, size)))
        return as_distributed(mark_as_local(dataset))

    def _as_long_as_the_longest(self, dataset: Any) -> Any:
        """`dataset`, then batches without rows as long as another rank has batches. Collective.

        A custom loop takes as many steps on each rank, and meets the others in each. Where some rank does not know how
        many batches it has, this cannot be seen to.
        """
        if self.group.size == 1 or not tf.executing_eagerly():
            return dataset
        counts = self.collectives.all_gather(tf.reshape(dataset.cardinality(), [1])).numpy()
        if counts.min() < 0 or counts.min() == counts.max():
            return dataset
        shapes = shapes_of_another(
            dataset, counts, self.group.rank, lambda own: self.collectives.all_gather(own).numpy()
        )
        return followed_by_empty_batches(dataset, shapes).take(counts.max())

    def _experimental_distribute_values_from_function(self, value_fn: Callable[[Any], Any]) -> Any:
        return value_fn(
            tf.distribute.experimental.ValueContext(
                replica_id_in_sync_group=self.group.rank, num_replicas_in_sync=self.group.size
            )
        )

    # Who writes.

    @property
    def should_checkpoint(self) -> bool:
        """The chief writes checkpoints."""
        return self.group.rank == 0

    @property
    def should_save_summary(self) -> bool:
        """The chief writes summaries."""
        return self.group.rank == 0


def _check_options(options: Any) -> None:
    """Refuses what TensorFlow refuses; here a dataset is on the CPU and its batches on the device anyway."""
    if options is None or not options.experimental_place_dataset_on_device:
        return
    if options.experimental_replication_mode != _PER_REPLICA or options.experimental_fetch_to_device:
        raise ValueError(
            "InputOptions(experimental_place_dataset_on_device=True) needs InputReplicationMode.PER_REPLICA and "
            f"experimental_fetch_to_device=False, as in TensorFlow; received {options} [distribute-api]"
        )


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
            if leaf.shape[0] is None:
                return tf.shape(leaf)[0]
            # Known while the step is built (a slice of `tf.shape` is not), but counted only once the batch is there.
            with tf.control_dependencies([leaf]):
                return tf.constant(leaf.shape[0], tf.int32)
        if hasattr(leaf, "__array_interface__") and getattr(leaf, "ndim", 0) > 0:
            return tf.constant(len(leaf), tf.int32)
    return None
