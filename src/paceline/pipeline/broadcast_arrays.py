"""Arrays of some ranks on all ranks, of which the others know neither number nor shapes."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.group import Group


def broadcast_to_all(tensors: Sequence[Any], group: Group, roots: Sequence[int]) -> list[list[Any]]:
    """For each of `roots` its arrays. Collective.

    Args:
        tensors: This rank's, if it is one of the roots; dense numbers, as many on each root.
        group: Who is shown them.
        roots: Ranks of the group.
    """
    is_root = group.rank in roots
    arrays = [np.ascontiguousarray(tensor) for tensor in tensors] if is_root else []
    if group.size == 1:
        return [arrays]
    header = json.dumps([[list(array.shape), array.dtype.name] for array in arrays]).encode() if is_root else b""
    described = group.all_gather(np.frombuffer(header, np.uint8))
    headers = {root: json.loads(described[root].tobytes()) for root in roots}
    shown: dict[int, list[Any]] = {root: [] for root in roots}
    for at in range(len(headers[roots[0]])):
        own = arrays[at].reshape(-1).view(np.uint8) if is_root else np.empty(0, np.uint8)
        as_bytes = group.all_gather(own)
        for root in roots:
            shape, dtype = headers[root][at]
            shown[root].append(as_bytes[root].view(tf.as_dtype(dtype).as_numpy_dtype).reshape(shape))
    return list(shown.values())
