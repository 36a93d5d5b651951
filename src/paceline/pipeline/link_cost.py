"""What a message from one stage to another costs, measured by all ranks of a job together."""

import statistics
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from paceline.comm.group import Group
from paceline.plan.costs import Link

_FEW_BYTES, _MANY_BYTES = 64, 2**21
_REPEATS = 15


def link_of(group: Group, clock: Callable[[], float] = time.perf_counter) -> Link:
    """Measures messages between ranks that follow each other. Collective; all ranks get the same.

    Args:
        group: Every rank of it calls.
        clock: Seconds.

    Returns:
        The slowest of them, from the send to the tensor. A group of one rank sends nothing: messages cost nothing.
    """
    if group.size == 1:
        return Link()
    own = [_message_seconds(group, num_bytes, clock) for num_bytes in (_FEW_BYTES, _MANY_BYTES)]
    few, many = np.max(group.all_gather(np.array(own)), axis=0).tolist()
    seconds_of_byte = max(0.0, many - few) / (_MANY_BYTES - _FEW_BYTES)
    return Link(few, 1 / seconds_of_byte) if seconds_of_byte else Link(few)


def _message_seconds(group: Group, num_bytes: int, clock: Callable[[], float]) -> float:
    """Of a message to the next rank, while one of the same size comes from the rank before."""
    array = np.zeros(num_bytes, np.uint8)
    spent = []
    for _ in range(_REPEATS):
        group.barrier()
        begin = clock()
        received = group.recv(array.shape, array.dtype, (group.rank - 1) % group.size)
        sent = group.send(array, (group.rank + 1) % group.size)
        tf.constant(received.wait())
        spent.append(clock() - begin)
        sent.wait()
    return statistics.median(spent)
