"""What a step knows about itself: the context in which `strategy.run` calls the user's function."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.comm.communicator import Reduction
from paceline.strategy import compat
from paceline.strategy.as_written import as_written
from paceline.strategy.graph_collectives import GraphCollectives

_REDUCTIONS = {
    tf.distribute.ReduceOp.SUM: Reduction.SUM,
    tf.distribute.ReduceOp.MEAN: Reduction.SUM,
}


class StepRows:
    """How many rows this rank has of the step's global batch, and how many there are; asked for when first needed.

    The sum over ranks is a collective: whoever asks must do so on all ranks at the same point of the program. It is
    built once per graph and shared by the graphs nested in it.

    Args:
        local: int32 scalar, the rows on this rank; None when the step has no batch (no tensor argument).
        collectives: Sum the rows over ranks.
    """

    def __init__(self, local: Any, collectives: GraphCollectives) -> None:
        self._local = local
        self._collectives = collectives
        self._global_by_graph: list[tuple[Any, Any]] = []
        self.of_trainer = False
        """Whether the step is a Keras trainer's, not one of a custom loop."""
        self.loss_is_share = False
        """Whether a Keras loss has scaled itself to this rank's share of the global one while the step was built."""

    @property
    def known(self) -> bool:
        """Whether the step has a batch at all."""
        return self._local is not None

    def counts(self, dtype: Any) -> tuple[Any, Any]:
        """Scalars (rows on this rank, rows over all ranks) of the floating `dtype`. Collective."""
        return tf.cast(self._local, dtype), tf.cast(self._global(), dtype)

    def _global(self) -> Any:
        graph = None if tf.executing_eagerly() else compat.get_default_graph()
        for built_in, total in self._global_by_graph:
            if built_in is None or _is_inside(graph, built_in):
                return total
        [total] = self._collectives.all_reduce([self._local])
        self._global_by_graph.append((graph, total))
        return total


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
        self.rows = rows
        self.gradients_are_reduced = False
        """True while an optimizer works on gradients that are already summed over ranks."""
        self._collectives = collectives

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
            value: A structure of tensors; shapes and dtypes equal on all ranks.
            options: Accepted for compatibility; Paceline chooses how to communicate.
        """
        del options
        if isinstance(reduce_op, str):
            reduce_op = tf.distribute.ReduceOp(reduce_op.upper())
        if self.gradients_are_reduced:
            return value
        flat = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(value)]
        reduced = self._differentiable_sum(*flat) if flat else []
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            reduced = [total / tf.cast(self.num_replicas_in_sync, total.dtype) for total in reduced]
        return tf.nest.pack_sequence_as(value, list(reduced))

    def _differentiable_sum(self, *tensors: Any) -> Any:
        """Sum over ranks; the gradient of a sum over ranks is the sum over ranks of the gradients."""

        @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow is untyped
        def summed(*inputs: Any) -> Any:
            def gradient(*upstream: Any) -> Any:
                return self._differentiable_sum(*upstream)

            return self._collectives.all_reduce(inputs), gradient

        results = summed(*tensors)
        return results if isinstance(results, (list, tuple)) else [results]
