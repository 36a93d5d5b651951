"""The contract of talking: what every group of ranks promises, whatever carries the bytes.

Two kinds of calls:

*Collectives* (`all_reduce`, `all_gather`, `broadcast`, `barrier`, `split`, `close`): every rank of the group calls the
same method, in the same order, with arguments that agree as stated; each call blocks until its result is there. A rank
that calls something else is a fault of the job: implementations that can tell raise `DesynchronizedError`, the others
may block until the job's supervisor ends it.

    rank 0: all_reduce([[1, 2]])  ─┐            rank 0: all_gather([[1], [2]]) ─┐
    rank 1: all_reduce([[3, 4]])  ─┴► [[4, 6]]  rank 1: all_gather([[3]])      ─┴► [[[1], [2]], [[3]]]

*Messages* (`send`, `recv`): two ranks; both calls return a `Request` at once, whose `wait` blocks.

    rank 0: send(activations, to=1, tag=7) ─► Request ··· wait() ─► the array may be written again
    rank 1: recv((32, 10), "float32", source=0, tag=7) ─► Request ··· wait() ─► activations

Messages of one source and one tag arrive in the order in which they were sent, and the n-th `recv` gets the n-th of
them, in whichever order the requests are waited for. Messages of different tags or sources do not wait for each other.

**Groups of one process** are independent: messages and collectives of one never meet those of another. Two groups that
share several ranks must be used in one order by all of these (as two locks must be taken in one order).

**Threads.** One thread at a time may be in the collectives of a group. Other threads may use other groups meanwhile,
and any thread may send, receive and wait.

**Deadlocks.** `wait` on what was sent may last until the receiver has called `recv` for it and is in any call of any
group; it does not need the receiver's `wait`. So two ranks that exchange arrays call `recv` before they wait for what
they send; then no order of waits can block them. A rank that waits for a message nobody sends waits as long as one in a
collective that nobody enters.

**A rank that dies** leaves the others in their calls. Their supervisor (an agent, MPI's launcher) ends them, in
messages as in collectives; an error that the carrier reports itself is raised.

**Arrays.** Arguments are read only, never written; results are new arrays that the caller may keep (none aliases an
argument or memory that a later call writes). What is sent must not be written before its request was waited for.

`tests/comm/contract.py` is this text as a test suite; each implementation passes it.

**A new collective** goes here and in every `Group`: `solo.py`, `mpi.py`, `shared_memory.py` (its kind in
`window_meeting.py`), `tensorflow_collectives.py`, and `counted_group.py`, which wraps them all; into graphs in
`strategy/graph_collectives.py`.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from paceline.errors import DesynchronizedError

Array = npt.NDArray[np.generic]
Received = TypeVar("Received", covariant=True)

MOST_TAG = 32_767
"""The greatest tag that every MPI can carry."""


class Reduction(enum.Enum):
    """How `Group.all_reduce` combines the elements of the ranks."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


class Request(ABC, Generic[Received]):
    """A message on its way: what `Group.send` and `Group.recv` return. Each request is waited for once."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether `wait` would return at once. Does not block."""

    @abstractmethod
    def wait(self) -> Received:
        """Blocks until the message was received, or the array that is sent may be written again.

        Returns:
            Of `recv`: the array. Of `send`: None.

        Raises:
            DesynchronizedError: of `recv`: the message has other bytes than an array of this shape and dtype.
        """


class Group(ABC):
    """A group of ranks that can talk.

    >>> from paceline.comm.solo import SoloGroup
    >>> alone = SoloGroup()
    >>> [total] = alone.all_reduce([np.ones(2)])
    >>> total
    array([1., 1.])
    """

    @property
    @abstractmethod
    def rank(self) -> int:
        """This process's number in the group, 0 to `size` - 1. Not collective."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many ranks the group has. Not collective."""

    @property
    def num_present(self) -> int:
        """How many of them have a process, the first ones: all, except among stand-ins. Not collective."""
        return self.size

    @abstractmethod
    def all_reduce(self, arrays: Sequence[Array], reduction: Reduction = Reduction.SUM) -> list[Array]:
        """Combines each array over the ranks, element by element; every rank gets the same bits.

        Args:
            arrays: Any number of arrays of any shape (empty ones too) and numeric dtype (also float16 and bfloat16);
                their number, shapes and dtypes are equal on all ranks. Many in one call cost little more than their
                bytes: hand over all gradients at once.
            reduction: The operation; equal on all ranks.

        Returns:
            Arrays of the same shapes and dtypes. Integers wrap around, as NumPy's do; the sum of truth values is "any".

        Raises:
            TypeError: the smallest or largest of complex numbers is asked for.
        """

    @abstractmethod
    def all_gather(self, array: Array) -> list[Array]:
        """Hands every rank's array to all.

        Args:
            array: At least one dimension; dtype and all dimensions but the first are equal on all ranks, the first
                (the rows) may differ and be zero.

        Returns:
            One array per rank, in rank order, equal on all ranks.
        """

    @abstractmethod
    def broadcast(self, arrays: Sequence[Array]) -> list[Array]:
        """Hands the chief's (rank 0's) arrays to all.

        Args:
            arrays: Number, shapes and dtypes are equal on all ranks; the values of ranks other than 0 are ignored.

        Returns:
            Rank 0's values.
        """

    @abstractmethod
    def barrier(self) -> None:
        """Returns when all ranks have called it."""

    @abstractmethod
    def send(self, array: Array, to: int, tag: int = 0) -> Request[None]:
        """Sends an array to one rank. Not collective; returns at once.

        Args:
            array: Any shape (an empty one, too) and dtype. Not to be written before `wait` of the request has returned.
            to: The receiver's rank in this group; may be this rank.
            tag: 0 to `MOST_TAG`; the receiver asks for the message by it.

        Raises:
            ValueError: no such rank, or no such tag.
        """

    @abstractmethod
    def recv(self, shape: Sequence[int], dtype: npt.DTypeLike, source: int, tag: int = 0) -> Request[Array]:
        """Receives an array from one rank. Not collective; returns at once.

        Args:
            shape: The array's, as it was sent.
            dtype: The array's, as it was sent.
            source: The sender's rank in this group; may be this rank.
            tag: As it was sent.

        Raises:
            ValueError: no such rank, or no such tag.
        """

    @abstractmethod
    def split(self, colour: int | None, key: int = 0) -> "Group | None":
        """Makes groups of the ranks of this one: those with one colour form one. Collective over this group.

            rank 0: split(0) ─► rank 0 of 2      rank 2: split(1) ─► rank 0 of 2
            rank 1: split(0) ─► rank 1 of 2      rank 3: split(None) ─► None; rank 2 is then rank 0 of 1

        Args:
            colour: From 0; None: this rank becomes a member of none.
            key: Ranks of the new group are in the order of their keys; of equal keys, in this group's order.

        Returns:
            The new group, which lives until its `close`, or until that of the group of all ranks.
        """

    @abstractmethod
    def close(self) -> None:
        """Leaves the group in order; collective, waits for all without burning a core, called once and last.

        Every request has been waited for. The group of all ranks is closed after all others, which need not be.
        """

    def check_message(self, peer: int, tag: int) -> None:
        """Refuses what no implementation can carry.

        Raises:
            ValueError: no such rank, or no such tag.
        """
        if not 0 <= peer < self.size:
            raise ValueError(
                f"received rank {peer} of a group of {self.size}; expected 0 to {self.size - 1}. [argument]"
            )
        if not 0 <= tag <= MOST_TAG:
            raise ValueError(f"received tag {tag}; expected 0 to {MOST_TAG}. [argument]")


def check_message_bytes(num_bytes: int | None, expected: Array, source: int, tag: int) -> None:
    """Refuses a message that cannot be the array that the receiver asked for.

    Args:
        num_bytes: The message's; None: more than expected.
        expected: An array as the receiver asked for.
        source: The sender.
        tag: The message's.

    Raises:
        DesynchronizedError: the message has another number of bytes.
    """
    if num_bytes != expected.nbytes:
        raise DesynchronizedError(
            f"rank {source} sent {'more' if num_bytes is None else num_bytes} bytes with tag {tag}, but the receiver "
            f"asked for an array of shape {expected.shape} and dtype {expected.dtype.name}, which has "
            f"{expected.nbytes} bytes: the two do not run the same program. Give `recv` the shape and dtype of what is "
            "sent. [messages-differ]"
        )


_OPERATIONS: dict[Reduction, np.ufunc] = {
    Reduction.SUM: np.add,
    Reduction.MIN: np.minimum,
    Reduction.MAX: np.maximum,
}


def operation_of(reduction: Reduction, arrays: Iterable[Array]) -> np.ufunc:
    """NumPy's function for `reduction`, if it is defined for these arrays.

    Raises:
        TypeError: the smallest or largest of complex numbers is asked for.
    """
    check_defined(reduction, arrays)
    return _OPERATIONS[reduction]


def check_defined(reduction: Reduction, arrays: Iterable[Array]) -> None:
    """Refuses what has no meaning, alike on all ranks and before anything is sent.

    Raises:
        TypeError: as `operation_of`.
    """
    if reduction is Reduction.SUM:
        return
    for array in arrays:
        if array.dtype.kind == "c":
            raise TypeError(
                f"received an array of {array.dtype.name} to reduce with {reduction}: complex numbers have no order. "
                "Reduce their real and imaginary parts, or their absolute values. [dtype]"
            )


def combine(parts: Sequence[Array], operation: np.ufunc, out: Array) -> None:
    """Writes parts[0] ∘ parts[1] ∘ … into `out`, which may be one of `parts`' memory only if it is parts[0]'s.

    Args:
        parts: One array per rank, of one shape and dtype.
        operation: From `operation_of`.
        out: Receives the result; same shape and dtype.
    """
    if len(parts) == 1:
        np.copyto(out, parts[0])
        return
    operation(parts[0], parts[1], out=out)
    for part in parts[2:]:
        operation(out, part, out=out)
