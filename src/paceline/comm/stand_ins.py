"""A group of ranks of which some are missing: those that are there stand in for the others, for predictions.

    group of 8, of which ranks 0 and 1 are there

    all_gather     rank 0's and rank 1's arrays, four times
    all_reduce     the sum of rank 0's and rank 1's arrays; of integers, such as numbers of rows, four times as much

So each rank has the rows, and sends the bytes, that it would have and send among eight, and waits for those alone that
are there. Sums of other numbers than integers have no meaning: nobody may keep what is trained so.
"""

from collections.abc import Sequence

import numpy.typing as npt

from paceline.comm.group import Array, Group, Reduction, Request
from paceline.errors import ConfigurationError

_LEAST_CARRIED_BYTES = 4
"""Of a number that is no integer: MPI has no half precisions, and carries them as float32."""


class StandInGroup(Group):
    """See the module. It counts what is sent.

    Args:
        inner: The group of the ranks that are there, the first ones.
        size: Of the whole group.
    """

    def __init__(self, inner: Group, size: int) -> None:
        self._inner = inner
        self._size = size
        self.num_messages = 0
        """That a rank has taken part in."""
        self.reduced_bytes = 0
        """That a rank has given to all-reduces."""
        self.gathered_bytes = 0
        """That a rank has given to the others as they are."""

    @property
    def rank(self) -> int:
        """See `Group.rank`."""
        return self._inner.rank

    @property
    def size(self) -> int:
        """See `Group.size`."""
        return self._size

    @property
    def num_present(self) -> int:
        """See `Group.num_present`."""
        return self._inner.size

    def all_reduce(self, arrays: Sequence[Array], reduction: Reduction = Reduction.SUM) -> list[Array]:
        """See `Group.all_reduce`."""
        self.num_messages += len({array.dtype for array in arrays})
        self.reduced_bytes += sum(map(_carried_bytes, arrays))
        results = self._inner.all_reduce(arrays, reduction)
        if reduction is not Reduction.SUM or self.num_present == self._size:
            return results
        return [self._of_all(total) if total.dtype.kind in "iu" else total for total in results]

    def _of_all(self, total: Array) -> Array:
        whole: Array = (total * self._size // self.num_present).astype(total.dtype, copy=False)
        return whole

    def all_gather(self, array: Array) -> list[Array]:
        """See `Group.all_gather`."""
        self.num_messages += 2  # the numbers of rows first
        self.gathered_bytes += array.nbytes
        parts = self._inner.all_gather(array)
        return [*parts, *(parts[rank % len(parts)].copy() for rank in range(len(parts), self._size))]

    def broadcast(self, arrays: Sequence[Array]) -> list[Array]:
        """See `Group.broadcast`."""
        self.num_messages += len(arrays)
        self.gathered_bytes += sum(array.nbytes for array in arrays)
        return self._inner.broadcast(arrays)

    def barrier(self) -> None:
        """See `Group.barrier`."""
        self.num_messages += 1
        self._inner.barrier()

    def send(self, array: Array, to: int, tag: int = 0) -> Request[None]:
        """Not among stand-ins: a rank that is missing would have to receive.

        Raises:
            ConfigurationError: always.
        """
        del array, to, tag
        raise _refusal()

    def recv(self, shape: Sequence[int], dtype: npt.DTypeLike, source: int, tag: int = 0) -> Request[Array]:
        """Not among stand-ins: a rank that is missing would have to send.

        Raises:
            ConfigurationError: always.
        """
        del shape, dtype, source, tag
        raise _refusal()

    def split(self, colour: int | None, key: int = 0) -> Group | None:
        """Not among stand-ins: groups of some ranks are those of pipelines, whose ranks do different things.

        Raises:
            ConfigurationError: always.
        """
        del colour, key
        raise _refusal()

    def close(self) -> None:
        """See `Group.close`."""
        self._inner.close()


def _carried_bytes(array: Array) -> int:
    if array.dtype.kind in "iub":
        return array.nbytes
    return array.size * max(array.itemsize, _LEAST_CARRIED_BYTES)


def _refusal() -> ConfigurationError:
    return ConfigurationError(
        "paceline predict knows jobs whose workers share the rows of each batch; in pipelines and loops whose workers "
        "send each other messages, measure a real job with `paceline run`. [predict]"
    )
