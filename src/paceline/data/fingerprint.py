"""Proof that all ranks read the same data: a fingerprint of each epoch's first global batch, compared over ranks.

Slicing a global batch is exact only if it is the same batch everywhere. The fingerprint is taken inside the input
pipeline, before the slice, and noted in a log on the Python side; `compare` then meets the others. Only the first batch
of an epoch is hashed, so the cost does not grow with the data.
"""

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.communicator import Communicator
from paceline.errors import DesynchronizedError

_HASHED_BYTES = 1 << 24
_KEPT_NOTES = 8


class FingerprintLog:
    """The fingerprints that one dataset has noted, in order."""

    def __init__(self) -> None:
        self._notes: list[int] = []
        self._first_number = 0

    def note(self, index: Any, element: Any, steps_per_epoch: int | None) -> Any:
        """An operation that notes `element`'s fingerprint if `index` (int64 scalar) begins an epoch."""
        leaves = [leaf for leaf in tf.nest.flatten(element, expand_composites=True) if tf.is_tensor(leaf)]
        position = index if steps_per_epoch is None else index % steps_per_epoch

        def take() -> Any:
            # Stateless for TensorFlow: a stateful function would forbid saving the iterator's position.
            return tf.numpy_function(self._take, leaves, tf.int64, stateful=False)

        return tf.cond(tf.equal(position, 0), take, lambda: tf.constant(0, tf.int64))

    def _take(self, *leaves: Any) -> np.int64:
        digest = hashlib.blake2b(digest_size=7)
        for leaf in leaves:
            array = np.asarray(leaf)
            digest.update(f"{array.shape} {array.dtype}".encode())
            if array.dtype == object:
                digest.update(repr(array.reshape(-1)[:1024].tolist()).encode())
            else:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8)[:_HASHED_BYTES].data)
        value = np.int64(int.from_bytes(digest.digest(), "little"))
        self._notes.append(int(value))
        return value

    def newest(self) -> list[tuple[int, int]]:
        """(number, fingerprint) of the newest notes; a rank that reads ahead may have more than another."""
        surplus = len(self._notes) - _KEPT_NOTES
        if surplus > 0:
            del self._notes[:surplus]
            self._first_number += surplus
        return [(self._first_number + offset, value) for offset, value in enumerate(list(self._notes))]


def compare(log: FingerprintLog, communicator: Communicator) -> None:
    """Compares the newest fingerprints over ranks. Collective.

    Raises:
        DesynchronizedError: some rank read another batch; names the ranks and the usual causes.
    """
    notes = np.array(log.newest(), np.int64).reshape(-1, 2)
    everyones = [dict(map(tuple, part.tolist())) for part in communicator.all_gather(notes)]
    chiefs = everyones[0]
    different = [
        rank
        for rank, theirs in enumerate(everyones)
        if any(chiefs[number] != theirs[number] for number in chiefs.keys() & theirs.keys())
    ]
    if different:
        raise DesynchronizedError(
            f"the ranks do not read the same data: the first global batch of an epoch on rank(s) "
            f"{', '.join(map(str, different))} is not rank 0's, so their slices do not add up to one batch. Usual "
            "causes: data shuffled or augmented in Python or NumPy with a seed of its own on each rank, "
            "an interleave or map with deterministic=False, dataset.shard(...) by hand, files listed in another order "
            "on each host, or a dataset built before the strategy in a process started by hand. Give the shuffle "
            "a seed (keras.utils.set_random_seed(1) at the top of the script does it for all), and give every rank "
            "the whole dataset: Paceline takes the rank's rows itself."
        )
