"""What a step knows about itself: the context in which `strategy.run` calls the user's function."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from paceline.comm.world import World
from paceline.strategy import compat, operation_seeds
from paceline.strategy.bridged_collectives import total_and_first_row
from paceline.strategy.graph_collectives import GraphCollectives, as_written
from paceline.strategy.python_calls import PythonCall
from paceline.strategy.reductions import reduced


class MovingStatistics:
    """Variables that each rank has moved by its own rows in a step (BatchNormalization's), not averaged yet.

    They move linearly, so the mean over ranks, weighed by rows, is what one rank would have that moved by the weighed
    mean of the ranks' batch statistics. After each step all ranks hold the same values: whoever saves at whatever
    moment saves the model of all.

    Args:
        rows: The step's row counts.
        size: Number of ranks.
        collectives: Sum over ranks.
    """

    def __init__(self, rows: "StepRows", size: int, collectives: GraphCollectives) -> None:
        self._rows = rows
        self._size = size
        self._collectives = collectives
        self._moved: dict[int, Any] = {}

    def note(self, variables: Iterable[Any]) -> None:
        """These floating variables have been moved by this rank's rows; all ranks note the same ones."""
        self._moved.update({id(variable): variable for variable in variables})

    def summed_with(self, tensors: Sequence[Any]) -> list[Any]:
        """The sums of `tensors` over ranks, in one message with the variables noted so far. Collective."""
        variables = list(self._moved.values())
        self._moved.clear()
        parts = [self._share_of(tf.convert_to_tensor(variable)) for variable in variables]
        totals = self._collectives.all_reduce([*tensors, *parts]) if tensors or parts else []
        for variable, total in zip(variables, totals[len(tensors) :], strict=True):
            variable.assign(total)
        return totals[: len(tensors)]

    def settle(self) -> None:
        """Averages what is left at the end of a step. Collective if anything is."""
        if self._moved:
            self.summed_with([])

    def _share_of(self, value: Any) -> Any:
        if not self._rows.known:
            return value / tf.cast(self._size, value.dtype)
        # No NaN: the statistics of no rows are not numbers, and count nothing.
        return tf.math.multiply_no_nan(value, self._rows.share(value.dtype))


class StepRows:
    """How many rows this rank has of the step's global batch, and how many there are; asked for when first needed.

    The sum over ranks is a collective: whoever asks must do so on all ranks at the same point of the program. It is
    built once per graph and shared by the graphs nested in it.

    Args:
        local: int32 scalar, the rows on this rank; None when the step has no batch (no tensor argument).
        size: Number of ranks.
        collectives: Sum the rows over ranks.
    """

    def __init__(self, local: Any, size: int, collectives: GraphCollectives) -> None:
        self._local = local
        self._size = size
        self._collectives = collectives
        self._known_by_graph: list[tuple[Any, tuple[Any, Any]]] = []
        self.statistics = MovingStatistics(self, size, collectives)
        self.loss_is_share = False
        """Whether a Keras loss has scaled itself to this rank's share of the global one while the step was built."""
        self.has_hidden_shares = False
        """Whether one has done so in a graph within the step's, such as a loop's, into which nobody looks."""
        self.lineage: Any = None
        """What its numbers have been found to be computed from (`fit/replica_loops/lineage.py`)."""
        self._graph = _current_graph()

    @property
    def known(self) -> bool:
        """Whether the step has a batch at all."""
        return self._local is not None

    @property
    def is_here(self) -> bool:
        """Whether what is built now is a part of the step itself, and not of a loop or branch in it."""
        return _current_graph() is self._graph

    def note_share(self) -> None:
        """A loss has just been scaled to this rank's share."""
        self.loss_is_share = True
        self.has_hidden_shares |= not self.is_here

    @property
    def local(self) -> Any:
        """int32 scalar: the rows on this rank."""
        return self._local

    def count(self) -> Any:
        """int64 scalar: the global rows; asked for here, before anything else of the step. Collective."""
        return self._of_all()[0]

    def counts(self, dtype: Any) -> tuple[Any, Any]:
        """Scalars (rows on this rank, rows over all ranks) of the floating `dtype`. Collective."""
        return tf.cast(self._local, dtype), tf.cast(self.count(), dtype)

    def share(self, dtype: Any) -> Any:
        """This rank's part of the global rows, scalar of the floating `dtype`; 0 of none. Collective."""
        if tf.as_dtype(dtype).size < 4:  # half precision cannot count to a large batch
            return tf.cast(self.share(tf.float32), dtype)
        return tf.math.divide_no_nan(*self.counts(dtype))

    def everywhere(self, flag: Any) -> Any:
        """bool scalar: whether `flag`, a bool scalar, is true on all ranks. Collective."""
        [number] = self._collectives.all_reduce([tf.cast(flag, tf.int64)])
        return tf.equal(number, self._size)

    def begin(self) -> Any:
        """int64 scalar: which row of the global batch is this rank's first one. Collective."""
        return self._of_all()[1]

    def _of_all(self) -> tuple[Any, Any]:
        graph = _current_graph()
        for built_in, known in self._known_by_graph:
            if built_in is None or _is_inside(graph, built_in):
                return known
        known = rows_of_all(self._local, self._collectives)
        self._known_by_graph.append((graph, known))
        return known


def rows_of_all(local: Any, collectives: GraphCollectives) -> tuple[Any, Any]:
    """int64 scalars: the sum of the ranks' rows, and of those before this one.

    Collective; a rank whose data has ended calls `no_more_rows` instead.

    Args:
        local: Integer scalar: this rank's rows.
        collectives: Sum over ranks.

    Raises:
        tf.errors.OutOfRangeError: some rank has no more data, or none has rows: on all ranks, in the same step.
    """
    total, first = collectives.count_rows(tf.cast(local, tf.int64))
    if tf.executing_eagerly():
        _end_without_rows(total.numpy())
        return total, first
    with tf.control_dependencies([tf.cond(total > 0, tf.no_op, lambda: tf.group(_ENDING.in_graph([total])))]):
        return tf.identity(total), tf.identity(first)


NO_MORE = -(2**40)
"""Added to the ranks' rows, it makes the sum negative."""


def no_more_rows(world: World) -> bool:
    """This rank's data has come to its end: the others, at or before their next step, end with it. Collective.

    Returns:
        Whether all ranks have said so: none has begun another step.
    """
    return total_and_first_row(world, NO_MORE)[0] == NO_MORE * world.data.size


class OutOfData(StopIteration):
    """TensorFlow makes an `OutOfRangeError` of it, the end of every loop over data."""


class CutShort(OutOfData):
    """The end of an execution of several steps, of which some have been taken."""


def _end_without_rows(total: Any) -> list[Any]:
    if total > 0:
        return [total]
    raise OutOfData("the data of some rank has come to its end")


_ENDING = PythonCall(_end_without_rows)


def _current_graph() -> Any:
    """The graph that is being built; None: operations run at once."""
    return None if tf.executing_eagerly() else compat.get_default_graph()


def _is_inside(graph: Any, outer: Any) -> bool:
    """Whether `graph` is `outer` or nested in it, so that it can use `outer`'s tensors."""
    while graph is not None:
        if graph is outer:
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


class PacelineReplicaContext(compat.ReplicaContext):  # type: ignore[misc]  # a TensorFlow class, untyped
    """The replica context of one rank.

    Args:
        strategy: The strategy whose `run` made it.
        rank: This replica's id.
        rows: The step's row counts.
        collectives: Carry `all_reduce`.
    """

    def __init__(self, strategy: Any, rank: int, rows: StepRows, collectives: GraphCollectives) -> None:
        super().__init__(strategy, replica_id_in_sync_group=rank)
        self.rank = rank
        """As a number, also in graphs, where `replica_id_in_sync_group` is a tensor."""
        self.rows = rows
        self.gradients_are_reduced = False
        """True while an optimizer works on gradients that are already summed over ranks."""
        self.collectives = collectives
        """Over the replicas, in the step."""

    def leave(self) -> None:
        """The step has been called: nobody may ask for its rows any more.

        TensorFlow keeps contexts as long as whatever was traced in them with a gradient of Python's own, which is for
        ever; not with them the graphs of the step.
        """
        del self.rows

    @property
    def devices(self) -> Sequence[str]:
        """The device of this replica."""
        devices: Sequence[str] = self._strategy.extended.worker_devices
        return devices

    @as_written
    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """As `tf.distribute.ReplicaContext.all_reduce`; differentiable. Collective.

        Args:
            reduce_op: `tf.distribute.ReduceOp` or its name.
            value: A structure of tensors, shapes and dtypes equal on all ranks, and of `tf.IndexedSlices`, whose rows
                may differ: the result has those of all ranks.
            options: Accepted for compatibility; Paceline chooses how to communicate.
        """
        del options
        if isinstance(reduce_op, str):
            reduce_op = tf.distribute.ReduceOp(reduce_op.upper())
        if self.gradients_are_reduced:
            return value
        flat = tf.nest.flatten(value)
        if any(isinstance(leaf, tf.IndexedSlices) for leaf in flat):
            totals = reduced(self.collectives, self.num_replicas_in_sync, reduce_op, flat)
            return tf.nest.pack_sequence_as(value, totals)
        totals = self._differentiable_sum(*[tf.convert_to_tensor(leaf) for leaf in flat]) if flat else []
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            totals = [total / tf.cast(self.num_replicas_in_sync, total.dtype) for total in totals]
        return tf.nest.pack_sequence_as(value, list(totals))

    def _merge_call(self, merge_fn: Any, args: Any, kwargs: Any) -> Any:
        with operation_seeds.of_all_ranks():
            return super()._merge_call(merge_fn, args, kwargs)

    def _differentiable_sum(self, *tensors: Any) -> Any:
        """Sum over ranks; the gradient of a sum over ranks is the sum over ranks of the gradients."""

        @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow is untyped
        def summed(*inputs: Any) -> Any:
            def gradient(*upstream: Any) -> Any:
                return self._differentiable_sum(*upstream)

            return self.collectives.all_reduce(inputs), gradient

        results = summed(*tensors)
        return results if isinstance(results, (list, tuple)) else [results]
