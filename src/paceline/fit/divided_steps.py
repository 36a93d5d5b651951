"""A trainer's step over the whole batch, of which each rank computes what its own rows need.

    step function ─► traced once as plain Keras traces it: no strategy, no patch, the whole batch
                  ─► divided by rules (`spmd/`): own rows, addends, messages
                  ─► built into the function that Keras makes of a step

So gradients, losses, metrics, statistics and what a user's `train_step` does besides are what one worker computes, and
all that a step returns or assigns is whole, and the same on all ranks.

Where there is no graph (`run_eagerly`), or none that can be divided, each rank gets the rows of all and computes the
step of one worker.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.data.own_rows.division import rows_of
from paceline.data.own_rows.replicated import WholeRows
from paceline.fit import batch_statistics
from paceline.fit.followers_writer import traced_as_on_chief
from paceline.fit.one_workers_step import traced_step, users_line_in_step
from paceline.fit.predictions import of_all_ranks
from paceline.fit.replica import current_replica
from paceline.fit.same_steps import compare_steps
from paceline.fit.verification import Verification
from paceline.fit.whole_batches import WholeBatch
from paceline.fit.whole_steps import WholeStep, words_on_all_rows, words_on_messages
from paceline.spmd.account import Account
from paceline.spmd.partition import Partitioner
from paceline.strategy.as_one_worker import as_one_worker
from paceline.strategy.base import SynchronousStrategy
from paceline.strategy.fused_updates import fused_updates
from paceline.strategy.replica_context import PacelineReplicaContext
from paceline.strategy.step_messages import StepMessages

_LOGGER = logging.getLogger("paceline")

Function = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class _Component:
    """A component of the batch that a step takes.

    Args:
        spec: How one worker has it; what is no tensor is the same for all.
        tensors: What the divided step is given for it; of what is no tensor, nothing.
        is_divided: Whether these are this rank's rows; else they are the same on all ranks.
    """

    spec: Any
    tensors: list[Any]
    is_divided: bool = False


class DividedStep:
    """A step on this rank's rows that returns what the step of one worker returns.

    Called while a graph is built, or for each step of an eager model.

    Args:
        step_function: Keras's, or a user's, of one batch.
        batch: What is known of the whole one.
        strategy: Whose ranks divide it.
        after: Called in the graph with the global number of rows, once that is known; what it returns comes before
            everything of the step.
        names: The names of variables, by the identity of TensorFlow's.
    """

    def __init__(
        self,
        step_function: Function,
        batch: WholeBatch,
        strategy: SynchronousStrategy,
        after: Function = tf.identity,
        names: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        self._step_function = step_function
        self._names = names
        self._coming: list[Any] = []
        self._batch = batch
        self._strategy = strategy
        self._after = after
        self._traced: list[Any] = []
        """A graph uses what another one has been traced into: it must live as long."""
        self._without_data: Any = None
        self._is_rejected = False
        """Whether it could not be divided, or not rightly: then every trace is of whole batches, on all ranks."""
        self.__name__ = getattr(step_function, "__name__", "step")
        self._words = WholeStep(self.__name__, strategy.world)

    def __call__(self, data: Any) -> Any:
        """The outputs of the step, whole. Collective."""
        replica = current_replica()
        assert replica is not None
        total, first = self._place(replica)
        if tf.executing_eagerly():
            self._words.say("run_eagerly=True: there is no graph that could be divided")
            whole = tf.nest.map_structure(lambda leaf: self._whole(leaf, replica), data)
            with as_one_worker():
                return self._step_function(whole)
        components = [self._component(index, leaf, replica) for index, leaf in enumerate(tf.nest.flatten(data))]
        specs = tf.nest.pack_sequence_as(data, [one.spec for one in components])
        with as_one_worker(), traced_as_on_chief():
            traced = traced_step(self._step_function, specs)
            divided = self._checked(traced, components, replica)
        self._traced.append((traced, divided))
        with tf.control_dependencies([total]):
            # TensorFlow drops a control edge from what is an input, too. Without the edge, what waits for no data would
            # happen in a step that does not take place.
            takes_place = tf.no_op()
        with tf.control_dependencies([takes_place]):
            if divided is None:
                outputs = traced(
                    *(self._whole(own, replica) if one.is_divided else own for one in components for own in one.tensors)
                )
            else:
                outputs = divided(total, first, *(own for one in components for own in one.tensors))
        left = iter(tf.nest.flatten(outputs, expand_composites=True))
        returned = tf.nest.flatten(traced.structured_outputs, expand_composites=True)
        results = [next(left) if isinstance(one, tf.TensorSpec) or tf.is_tensor(one) else one for one in returned]
        return tf.nest.pack_sequence_as(traced.structured_outputs, results, expand_composites=True)

    def verify_on(self, batch: Any) -> None:
        """If the next call traces the step, it is compared with one worker's on a batch.

        Args:
            batch: This rank's rows of the one that the step takes first; None: the data have ended.
        """
        self._coming = [batch]

    def take_without_data(self) -> None:
        """Runs the operations of the step that wait for no data, such as counting the step and drawing seeds.

        The caller calls this on all ranks when the data have ended: plain TensorFlow has run these operations by then.
        Nothing happens before the first trace, nor where ranks feed rows of their own: no worker alone has such data.
        No messages.
        """
        if self._without_data is not None and not self._batch.is_local:
            self._without_data()

    def _checked(self, traced: Any, components: Sequence[_Component], replica: PacelineReplicaContext) -> Any:
        """The divided step, which is built, and compared where it can be; None: it is to be computed whole. Collective.

        Once a trace is rejected, so is every later one: ranks may trace again at different times.
        """
        coming, self._coming = self._coming, []
        group = self._strategy.group
        if not self._traced and not self._batch.is_local:  # ranks may feed rows of other shapes
            with tf.init_scope():
                compare_steps(traced, self.__name__, group)
        if self._is_rejected:
            return None
        partitioner = Partitioner(
            StepMessages(replica.rank, replica.collectives),
            fused_updates(tells=self._strategy.world.is_chief),
        )
        divided = self._words.unless_divided(lambda: self._divided(partitioner, traced, components))
        by_own_rows = [] if divided is None else batch_statistics.layers_among(partitioner.operations(traced))
        # Ranks that feed rows of their own may have padded them to other lengths, and could not gather them.
        if divided is not None and coming and not self._batch.is_local:
            are_rows = [one.is_divided if one.tensors else None for one in components]
            verification = Verification(
                partitioner,
                traced,
                divided,
                are_rows,
                self._names(),
                replica.collectives,
                group,
                on_one_rank=bool(by_own_rows),
            )
            if not self._is_like_one_workers(verification, *coming):
                divided = None
        self._is_rejected = divided is None
        if divided is not None and not self._traced:
            self._say_what_is_sent(partitioner.account, components, *coming, by_own_rows=bool(by_own_rows))
            batch_statistics.say(by_own_rows, self._strategy.world)
        return divided

    def _divided(self, partitioner: Partitioner, traced: Any, components: Sequence[_Component]) -> Any:
        self._without_data = partitioner.without_data(traced)
        are_rows = [one.is_divided for one in components for _ in one.tensors]
        num_rows = self._batch.num_rows
        return partitioner.divided(traced, are_rows, num_rows if num_rows != 1 else None).get_concrete_function()

    def _is_like_one_workers(self, verification: Verification, batch: Any) -> bool:
        """Whether the divided graph gives what the undivided one gives on the coming batch, as far as that is known."""
        verdict = verification.verdict(batch, is_whole=self._batch.num_rows is not None)
        if verdict.unknown and self._strategy.world.is_chief:
            _LOGGER.info("%s was not compared with one worker's: %s [verify]", self.__name__, verdict.unknown)
        if not verdict.difference:
            return True
        told = f"divided over the workers, it gives another number than whole: {verdict.difference}"
        told = f"{told}, on {verdict.num_rows} rows of the first batch; please report this"
        if self._strategy.world.verify == "strict":
            raise RuntimeError(
                f"{self.__name__} cannot be trusted: {told}. With --verify auto every worker computes all rows [verify]"
            )
        self._words.say(told)
        return False

    def _say_what_is_sent(
        self, account: Account, components: Sequence[_Component], batch: Any = None, *, by_own_rows: bool
    ) -> None:
        """The chief says so if there are many messages, names the lines that need rows of all ranks, and their cost.

        Args:
            account: Of the divided step.
            components: Of the batch.
            batch: This rank's rows of the coming one, if they are known.
            by_own_rows: Whether layers normalize by own rows.
        """
        if not self._strategy.world.is_chief:
            return
        num_rows = self._batch.num_rows or self._batch.usual_num_rows
        if num_rows is None and batch is not None:
            num_rows = int(rows_of(batch)) * self._strategy.group.size  # about: ranks may have a row more or less
        leaves = [None] * len(components) if batch is None else tf.nest.flatten(batch)
        shapes = [
            leaf.shape.as_list() if one.is_divided and tf.is_tensor(leaf) else []
            for one, leaf in zip(components, leaves, strict=True)
            for _ in one.tensors
        ]
        if many := words_on_messages(account, normalizes_by_own_rows=by_own_rows):
            _LOGGER.info("%s %s [messages]", self.__name__, many)
        words, is_costly = words_on_all_rows(account, num_rows, shapes, users_line_in_step)
        if words:
            level = logging.WARNING if is_costly else logging.INFO
            _LOGGER.log(level, "%s needs the rows of the whole batch in %s [whole-rows]", self.__name__, words)

    def _whole(self, leaf: Any, replica: PacelineReplicaContext) -> Any:
        """A component of the whole batch. Collective."""
        if isinstance(leaf, WholeRows):
            return leaf.rows
        if not isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) and (not tf.is_tensor(leaf) or leaf.shape.rank == 0):
            return leaf
        return of_all_ranks(replica.collectives, replica.rank, leaf)

    def _place(self, replica: PacelineReplicaContext) -> tuple[Any, Any]:
        """How many rows there are in all, and which is this rank's first: both int64. Collective."""
        if not replica.rows.known:
            return tf.constant(1, tf.int64), tf.constant(0, tf.int64)
        total = self._after(replica.rows.count())
        if not self._batch.is_local:
            return total, replica.rows.begin()
        with tf.control_dependencies([total]):
            counts = replica.collectives.all_gather(tf.cast(replica.rows.local, tf.int64)[tf.newaxis])
        return total, tf.reduce_sum(counts[: replica.rank])

    def _component(self, index: int, leaf: Any, replica: PacelineReplicaContext) -> _Component:
        """A component of the batch. Rows of tensors that are no simple arrays are gathered first."""
        if isinstance(leaf, WholeRows | tf.RaggedTensor | tf.SparseTensor):
            whole = self._whole(leaf, replica)
            tensors = tf.nest.flatten(whole, expand_composites=True)
            return _Component(tf.type_spec_from_value(whole), tensors)
        if not tf.is_tensor(leaf):
            return _Component(leaf, [])
        if leaf.shape.rank is None:
            return _Component(tf.TensorSpec(None, leaf.dtype), [self._whole(leaf, replica)])
        if leaf.shape.rank == 0:
            return _Component(tf.TensorSpec([], leaf.dtype), [leaf])
        shape = [self._batch.size_of(index), *leaf.shape.as_list()[1:]]
        return _Component(tf.TensorSpec(shape, leaf.dtype), [leaf], is_divided=True)
