"""What the partitioner asks of whoever carries bytes between ranks; where there is one rank, nobody does."""

from collections.abc import Sequence
from typing import Any, Protocol

from paceline.spmd import compat
from paceline.spmd.decisions import Operation


class Messages(Protocol):
    """The ranks of a job, for operations of a graph.

    Every rank builds and runs the same calls in one order: who implements this keeps operations of one graph in the
    order in which they were built, also across loops and branches.
    """

    @property
    def acts_outside(self) -> bool:
        """Whether this is the rank that prints, writes and does for all whatever else only acts on the outside."""
        ...

    def addend(self, whole: Any) -> Any:
        """`whole` on one of the ranks, and zeros of its shape on the others: the sum over ranks is `whole`."""
        ...

    def first_of(self, tensors: Sequence[Any]) -> Sequence[bool]:
        """Of the tensors that operations wait for, at least one: which are exchanged before the others.

        Of the others, some may not be needed when these are whole. All, where few messages are wanted, as by default.
        """
        return [True] * len(tensors)

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """The sums over ranks of these tensors, in one message. The shapes are alike on all ranks; any numeric type."""
        ...

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """For each tensor and dimension: the tensors of all ranks one after the other along it, in one message.

        Only that dimension differs from rank to rank, and it may be empty. Any type, strings too.
        """
        ...

    def called(self, op: Operation, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a call of Python (`PyFunc` and its like), which rank 0 makes for all, in one message.

        Shapes and numbers are alike on all ranks; an exception is raised on all.

        Args:
            op: The call, as it was traced.
            inputs: Whole.

        Returns:
            The outputs; of a call that has none, the operation that comes last.
        """
        ...


class Alone(Messages):
    """`Messages` of one rank: its addends are sums, and its rows are all rows."""

    acts_outside = True

    def addend(self, whole: Any) -> Any:
        """See `Messages.addend`."""
        return whole

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """See `Messages.sum`."""
        return list(addends)

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """See `Messages.gather`."""
        return [tensor for tensor, _ in parts]

    def called(self, op: Operation, inputs: Sequence[Any]) -> list[Any]:
        """See `Messages.called`: as TensorFlow calls it."""
        copy = compat.copied(op, list(inputs))
        return list(copy.outputs) or [copy]
