"""Variables of a strategy: what `aggregation` and `synchronization` mean when replicas assign and read; datasets of it.

The classes are TensorFlow's own (`MirroredVariable`, `SyncOnReadVariable`), each around this rank's one component, so
assigning, reading, saving and restoring go by TensorFlow's rules:

    ON_WRITE  a replica assigns a tensor ─► combined over ranks as `aggregation` says ─► the same value on every rank
    ON_READ   a replica assigns          ─► this rank's component; read outside of replicas ─► combined over ranks

Keras's variables stay plain ones, without any message. Keras keeps them equal, or puts them together, by itself: its
optimizers assign the same update on all ranks, its metrics are local sums.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.group import Array
from paceline.data.compat import variant_of
from paceline.data.faults import kept_fault_raised
from paceline.data.own_rows.local_batches import is_local, mark_as_local
from paceline.strategy import compat
from paceline.strategy.as_one_worker import is_as_one_worker
from paceline.strategy.per_thread import PerThread


class _Numbers:
    """What Python makes of a plain variable and TensorFlow's distributed ones lack: a script must not need to know."""

    read_value: Callable[[], Any]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        del copy  # a variable's value always is one
        return np.asarray(self.read_value(), dtype)

    def __bool__(self) -> bool:
        return bool(self.read_value())

    def __float__(self) -> float:
        return float(self.read_value())

    def __int__(self) -> int:
        return int(self.read_value())

    def __complex__(self) -> complex:
        return complex(self.read_value().numpy())


class MirroredVariable(_Numbers, compat.MirroredVariable):  # type: ignore[misc]  # a TensorFlow class, untyped
    """A variable that has the same value on all ranks after each assignment.

    A replica may assign another variable, too, which TensorFlow refuses in some strategies. A Python number is the same
    in all replicas and taken as it is, whatever `aggregation` says: a count of steps goes up by one. TensorFlow's
    strategies do that, or refuse.
    """

    def _update_replica(self, update_fn: Callable[..., Any], value: Any, **kwargs: Any) -> Any:
        if isinstance(value, tf.Variable):
            value = value.read_value()
        return super()._update_replica(update_fn, value, **kwargs)


class SyncOnReadVariable(_Numbers, compat.SyncOnReadVariable):  # type: ignore[misc]  # a TensorFlow class, untyped
    """A variable that each rank assigns for itself, and whose value outside of replicas is that of all.

    The first replica is the chief's on all ranks; TensorFlow takes each worker's own first one.

    Steps of `fit`, which compute what one worker computes, assign the whole value on all ranks: then it is that of an
    ordinary variable, everywhere.
    """

    is_whole = False
    """Whether all ranks have the whole value."""
    _is_apart = False
    """Whether replicas have assigned parts of it."""

    def _has_whole(self) -> bool:
        if is_as_one_worker():
            if self._is_apart:
                raise ValueError(self._mixed())
            self.is_whole = True
        return self.is_whole

    def _mixed(self) -> str:
        return (
            f"the variable {self.name!r} has synchronization=ON_READ, and is used in a step of fit, which computes the "
            "value of all workers, and in a function under strategy.run, which computes each worker's part. Use one "
            "variable for each."
        )

    def _assigned(self, how: str, *args: Any, **kwargs: Any) -> Any:
        replica = tf.distribute.get_replica_context()
        in_replica = replica is not None and replica.strategy is self.distribute_strategy
        if self._has_whole():
            if in_replica:
                raise ValueError(self._mixed())
            return getattr(self.values[0], how)(*args, **kwargs)
        self._is_apart |= in_replica
        return getattr(super(), how)(*args, **kwargs)

    def assign(self, *args: Any, **kwargs: Any) -> Any:
        """As TensorFlow's."""
        return self._assigned("assign", *args, **kwargs)

    def assign_add(self, *args: Any, **kwargs: Any) -> Any:
        """As TensorFlow's."""
        return self._assigned("assign_add", *args, **kwargs)

    def assign_sub(self, *args: Any, **kwargs: Any) -> Any:
        """As TensorFlow's."""
        return self._assigned("assign_sub", *args, **kwargs)

    def _get(self) -> Any:
        return self.values[0] if self._has_whole() else super()._get()

    def _get_cross_replica(self) -> Any:
        if self._has_whole():
            return self.values[0].read_value()
        if self.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA:
            return self.distribute_strategy.extended.broadcast_to(self.values[0].read_value(), self)
        return super()._get_cross_replica()

    def read_value(self) -> Any:
        """As TensorFlow's."""
        return self.values[0].read_value() if self._has_whole() else super().read_value()

    def value(self) -> Any:
        """A tensor: this replica's value in a replica, else what the ranks' values are together (collective)."""
        replica = tf.distribute.get_replica_context()
        is_local = replica is not None and replica.strategy is self.distribute_strategy
        if self._has_whole() or is_local or compat.get_update_replica_id() is not None:
            return self.values[0].value()
        return self.read_value()


_CLASSES = {
    tf.VariableSynchronization.ON_WRITE: MirroredVariable,
    tf.VariableSynchronization.ON_READ: SyncOnReadVariable,
}


def distributed_variable(strategy: Any, create: Callable[..., Any], **arguments: Any) -> Any:
    """A variable that is combined over the ranks of `strategy`.

    Args:
        strategy: Whose scope it is made in.
        create: Makes this rank's component, a plain variable, from `arguments`.
        arguments: TensorFlow's variable creators' own, `synchronization` and `aggregation` among them.

    Raises:
        ValueError: a combination without a meaning over replicas (`synchronization` NONE, the MEAN of integers).
    """
    policies: dict[Any, Any] = {}  # of strategies that mix both kinds in one class
    return compat.create_mirrored_variable(
        strategy, lambda **kwargs: [create(**kwargs)], _CLASSES, policies, **arguments
    )


def local_part(value: Any) -> Any:
    """This rank's component of a value of `tf.distribute`; a plain value is its own."""
    return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value


def parts_read_together(root: Any) -> list[Any]:
    """The variables below `root`, something that TensorFlow can save, whose values only all ranks can read."""
    return [
        part
        for part in tf.train.TrackableView(root).descendants()
        if isinstance(part, tf.distribute.DistributedValues)
        and getattr(part, "synchronization", None) == tf.VariableSynchronization.ON_READ
        and not getattr(part, "is_whole", False)
    ]


@contextmanager
def values_of_all_ranks(variables: Sequence[Any]) -> Iterator[None]:
    """While this lasts, each rank's components of ON_READ `variables` hold what they are together. Collective."""
    own = [local_part(variable).read_value() for variable in variables]
    for variable, total in zip(variables, [variable.read_value() for variable in variables], strict=True):
        local_part(variable).assign(total)
    try:
        yield
    finally:
        for variable, value in zip(variables, own, strict=True):
            local_part(variable).assign(value)


_in_keras = PerThread(False)
"""Whether this thread makes the value of a `keras.Variable`."""


def made_by_keras(keras_initialize: Callable[..., None]) -> Callable[..., None]:
    """Keras's `Variable._initialize`, which makes the `tf.Variable` that is its value."""

    def _initialize(self: Any, value: Any) -> None:
        with _in_keras.replaced(True):
            keras_initialize(self, value)

    return _initialize


def is_made_by_keras() -> bool:
    """Whether the `tf.Variable` that is being made will be the value of a `keras.Variable`.

    Nothing in a creator's arguments says so: Keras passes `aggregation` and `synchronization` like everybody else
    ("sum" and "on_read" for metrics, "only_first_replica" for an optimizer's counters). A `tf.Variable` that a user's
    layer makes in its `build` is not Keras's.
    """
    return _in_keras.value


# Keras, and scripts, ask `isinstance(data, tf.distribute.DistributedDataset)` to see whether data have been shared out.
# TensorFlow's own classes hold one dataset per local replica; here that is one, so it can be mapped and counted, too.


class DistributedIterator(compat.OwnedIterator, tf.distribute.DistributedIterator):  # type: ignore[misc]  # untyped
    """Steps through this replica's batches, eagerly or inside a `tf.function`."""

    def __next__(self) -> Any:
        with kept_fault_raised():
            return super().__next__()


class DistributedDataset(
    compat.UnaryUnchangedStructureDataset,  # type: ignore[misc]  # TensorFlow is untyped
    tf.distribute.DistributedDataset,  # type: ignore[misc]
):
    """This replica's batches.

    Args:
        dataset: A `tf.data.Dataset` of them.
    """

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset, variant_of(dataset))

    def __iter__(self) -> Any:
        return DistributedIterator(self)


def as_distributed(dataset: Any) -> Any:
    """`dataset`, of this replica's batches, as a `tf.distribute.DistributedDataset`."""
    if isinstance(dataset, DistributedDataset):
        return dataset
    distributed = DistributedDataset(dataset)
    return mark_as_local(distributed) if is_local(dataset) else distributed
