"""Talking through TensorFlow's own collective operations: RING over gRPC on CPUs, NCCL on GPUs.

`TensorCollectives` works on tensors, eagerly and in graphs; `TensorFlowGroup` makes a `Group` of it. Both
need a runtime that was configured for the group before its first operation (`strategy/collective_runtime.py`).

Members of a call find each other by its *instance key*, which TensorFlow remembers for ever together with the shape. A
key is computed from the kind of the call and its number of elements: the same on every rank whatever it has traced
before, and the same in every step. That calls with one key follow each other is fine; that they overlap is not, which
is why they must be in one order everywhere (`strategy/graph_collectives.py` sees to it in graphs).

Exercised with RING on CPUs; NCCL runs the same code on another device and has not been tried by Paceline's own tests.
"""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from paceline.cluster.communication import Communication
from paceline.comm.group import Array, Group, Reduction, Request, check_defined
from paceline.comm.tensorflow_carriers import Carrier, carrier_of, from_words, size_class, to_words, words_for

_KEY_OF_ALL_RANKS = 1
_KEY_BITS = 0x7FFFFFFF
_KEY_MULTIPLIER = 0x61C88647
"""Odd, so that different numbers of elements give different keys (a bijection modulo a power of two)."""


class TensorCollectives:
    """A group's collectives on tensors. Every rank makes the same calls, in one order.

    Args:
        rank: This rank.
        size: How many ranks the group has.
        communication: `RING` or `NCCL`.
        group_key: The number under which TensorFlow knows the group; no other group of the job has it.
    """

    def __init__(self, rank: int, size: int, communication: Communication, group_key: int = _KEY_OF_ALL_RANKS) -> None:
        self.rank = rank
        self.size = size
        self.communication = communication
        self._group_key = group_key
        self._hint = communication.name
        self._device = "/device:GPU:0" if communication is Communication.NCCL else "/device:CPU:0"

    def all_reduce(self, tensors: Sequence[Any], reduction: Reduction = Reduction.SUM) -> list[Any]:
        """Combines each tensor over the ranks; any shapes and numeric dtypes, equal on all ranks.

        Tensors with one carrier travel as one message.

        Raises:
            TypeError: as `Group.all_reduce`.
        """
        results: list[Any] = [None] * len(tensors)
        groups: dict[Any, list[tuple[int, Carrier]]] = {}
        for index, tensor in enumerate(tensors):
            carrier, merge = carrier_of(tensor.dtype, reduction)
            groups.setdefault((carrier.dtype, merge), []).append((index, carrier))
        with tf.device(self._device):
            before: list[Any] = []
            for (_, merge), members in groups.items():
                flat = [carrier.load(tf.reshape(tensors[index], [-1])) for index, carrier in members]
                if not all(part.shape.num_elements() for part in flat):
                    flat.append(tf.zeros([1], flat[0].dtype))  # RING dies of messages without elements
                with tf.control_dependencies(before):  # in one order on all ranks, as everything
                    total = self._reduce(tf.concat(flat, 0), merge)
                before = [total]
                parts = tf.split(total, [tf.size(part) for part in flat])
                for (index, carrier), part in zip(members, parts, strict=False):
                    results[index] = tf.reshape(carrier.unload(part), tf.shape(tensors[index]))
        return results

    def all_gather(self, tensor: Any) -> list[Any]:
        """Every rank's tensor, in rank order; equal but for the number of rows."""
        with tf.device(self._device):
            rows = tf.shape(tensor, tf.int64)[0]
            # TensorFlow orders members by device name ("task:10" before "task:2"): each says which rank it is.
            places = tf.reshape(self._gather(tf.stack([tf.constant(self.rank, tf.int64), rows])), [self.size, 2])
            order = tf.argsort(places[:, 0])
            rows_of = tf.gather(places[:, 1], order)
            row_shape = tf.shape(tensor, tf.int64)[1:]
            most_bytes = tf.reduce_max(rows_of) * tf.reduce_prod(row_shape) * tensor.dtype.size
            words = self._gather(to_words([tensor], size_class(most_bytes)))
            received = tf.gather(tf.reshape(words, [self.size, -1]), order)
            parts = []
            for rank in range(self.size):
                shape = tf.concat([rows_of[rank : rank + 1], row_shape], 0)
                [part] = from_words(received[rank], [(tensor.dtype, shape)])
                parts.append(part)
        return parts

    def broadcast(self, tensors: Sequence[Any]) -> list[Any]:
        """Rank 0's tensors; shapes and dtypes equal on all ranks."""
        if not tensors:
            return []
        with tf.device(self._device):
            kinds = [(tensor.dtype, tf.shape(tensor, tf.int64)) for tensor in tensors]
            num_bytes = tf.add_n([tf.reduce_prod(shape) * dtype.size for dtype, shape in kinds])
            words = to_words(tensors, words_for(num_bytes))
            group = {
                "group_size": self.size,
                "group_key": self._group_key,
                "instance_key": _instance_key("broadcast", words),
                "communication_hint": self._hint,
            }
            if self.rank == 0:
                received = tf.raw_ops.CollectiveBcastSendV2(input=words, **group)
            else:
                received = tf.raw_ops.CollectiveBcastRecvV2(T=words.dtype, shape=tf.shape(words), **group)
            return from_words(received, kinds)

    def barrier(self) -> None:
        """Returns when all ranks have called it. Eager."""
        with tf.device(self._device):
            self._reduce(tf.ones([1], tf.int32), "Add").numpy()

    def _reduce(self, flat: Any, merge: str) -> Any:
        return tf.raw_ops.CollectiveReduceV2(
            input=flat,
            group_size=self.size,
            group_key=self._group_key,
            instance_key=_instance_key(f"reduce {merge}", flat),
            ordering_token=[],
            merge_op=merge,
            final_op="Id",
            communication_hint=self._hint,
        )

    def _gather(self, flat: Any) -> Any:
        return tf.raw_ops.CollectiveGatherV2(
            input=flat,
            group_size=self.size,
            group_key=self._group_key,
            instance_key=_instance_key("gather", flat),
            ordering_token=[],
            communication_hint=self._hint,
        )


class TensorFlowGroup(Group):
    """`TensorCollectives` on NumPy arrays, and messages over MPI.

    TensorFlow's collectives have no messages. A broadcast between two members could be one, but would block a thread
    for each message that is expected, and cannot tell messages by their tags. MPI, which stands wherever Paceline
    starts processes, has all of this. It also meets all ranks at the end, when TensorFlow's servers go.

    Args:
        tensors: The group's collectives.
        messages: The same ranks, over MPI.
        keys: Of this process.
        members: The ranks of this group as they are numbered among all.
    """

    def __init__(
        self, tensors: TensorCollectives, messages: Group, keys: "GroupKeys | None" = None, members: Sequence[int] = ()
    ) -> None:
        self.tensors = tensors
        """The same collectives for tensors and graphs."""
        self._messages = messages
        self._keys = keys or GroupKeys(tensors.size)
        self._members = members or range(tensors.size)

    @property
    def rank(self) -> int:
        """This process's number in the group."""
        return self.tensors.rank

    @property
    def size(self) -> int:
        """Number of tasks of the cluster."""
        return self.tensors.size

    def all_reduce(self, arrays: Sequence[Array], reduction: Reduction = Reduction.SUM) -> list[Array]:
        """See `Group.all_reduce`."""
        check_defined(reduction, arrays)
        with tf.init_scope():  # at once, also while a graph is built
            return _to_arrays(self.tensors.all_reduce(_to_tensors(arrays), reduction))

    def all_gather(self, array: Array) -> list[Array]:
        """See `Group.all_gather`."""
        with tf.init_scope():
            return _to_arrays(self.tensors.all_gather(tf.convert_to_tensor(array)))

    def broadcast(self, arrays: Sequence[Array]) -> list[Array]:
        """See `Group.broadcast`."""
        with tf.init_scope():
            return _to_arrays(self.tensors.broadcast(_to_tensors(arrays)))

    def barrier(self) -> None:
        """See `Group.barrier`."""
        with tf.init_scope():
            self.tensors.barrier()

    def send(self, array: Array, to: int, tag: int = 0) -> Request[None]:
        """See `Group.send`."""
        return self._messages.send(array, to, tag)

    def recv(self, shape: Sequence[int], dtype: npt.DTypeLike, source: int, tag: int = 0) -> Request[Array]:
        """See `Group.recv`."""
        return self._messages.recv(shape, dtype, source, tag)

    def split(self, colour: int | None, key: int = 0) -> Group | None:
        """See `Group.split`."""
        messages = self._messages.split(colour, key)
        [number] = self._messages.all_reduce([np.array(self._keys.num_taken + 1)], Reduction.MAX)
        self._keys.num_taken = int(number)
        if messages is None or messages.size == 1:
            return messages
        own = self._members[self.rank]
        members = [int(rank[0]) for rank in messages.all_gather(np.array([own]))]
        tensors = TensorCollectives(
            messages.rank, messages.size, self.tensors.communication, self._keys.next_key(min(members))
        )
        return TensorFlowGroup(tensors, messages, self._keys, members)

    def close(self) -> None:
        """See `Group.close`. Whoever is here has all that it asked of the others."""
        self._messages.close()


class GroupKeys:
    """Numbers for groups, so that no two groups of the job have the same.

    The ranks that are split agree on how many numbers have been taken, which is more than any of them knew before. Of
    the groups that come of one split, each has another lowest rank.

    Args:
        num_ranks: In the whole job.
    """

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self.num_taken = _KEY_OF_ALL_RANKS

    def next_key(self, lowest_rank: int) -> int:
        """The key of the group with this lowest rank that comes of the latest split."""
        return self.num_taken * self._num_ranks + lowest_rank


def _to_tensors(arrays: Sequence[Array]) -> list[Any]:
    return [tf.convert_to_tensor(array) for array in arrays]


def _to_arrays(tensors: Sequence[Any]) -> list[Array]:
    """Copies that the caller may write to; NumPy would make numbers of tensors without dimensions."""
    return [np.array(tensor.numpy()) for tensor in tensors]


def _instance_key(kind: str, flat: Any) -> Any:
    """The key under which the ranks find each other in a call of this kind with so many elements."""
    seed = zlib.crc32(f"{kind} {flat.dtype.name}".encode()) & _KEY_BITS
    count = flat.shape.num_elements()
    if count is not None:
        return (count * _KEY_MULTIPLIER + seed) & _KEY_BITS
    return tf.bitwise.bitwise_and(tf.size(flat) * _KEY_MULTIPLIER + seed, _KEY_BITS)
