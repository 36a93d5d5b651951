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
    """The fingerprints that one dataset has noted: one for each epoch of each iterator over it.

    They are found by number, not by order: a rank that reads ahead may have noted an epoch that never comes.
    """

    def __init__(self) -> None:
        self._iterator = 0
        self._notes: dict[tuple[int, int], int] = {}

    def begin_iterator(self) -> None:
        """A new iterator over the dataset is about to be made."""
        self._iterator += 1

    def note(self, index: Any, element: Any, steps_per_epoch: int | None) -> Any:
        """An operation that notes `element`'s fingerprint if `index` (int64 scalar) begins an epoch."""
        leaves = [leaf for leaf in tf.nest.flatten(element, expand_composites=True) if tf.is_tensor(leaf)]
        epoch = tf.zeros_like(index) if steps_per_epoch is None else index // steps_per_epoch
        position = index if steps_per_epoch is None else index % steps_per_epoch

        def take() -> Any:
            # Stateless for TensorFlow: a stateful function would forbid saving the iterator's position.
            return tf.numpy_function(self._take, [epoch, *leaves], tf.int64, stateful=False)

        return tf.cond(tf.equal(position, 0), take, lambda: tf.constant(0, tf.int64))

    def _take(self, epoch: Any, *leaves: Any) -> np.int64:
        digest = hashlib.blake2b(digest_size=7)
        for leaf in leaves:
            array = np.asarray(leaf)
            digest.update(f"{array.shape} {array.dtype}".encode())
            if array.dtype == object:
                digest.update(repr(array.reshape(-1)[:1024].tolist()).encode())
            else:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8)[:_HASHED_BYTES].data)
        value = np.int64(int.from_bytes(digest.digest(), "little"))
        self._notes[self._iterator, int(epoch)] = int(value)
        while len(self._notes) > _KEPT_NOTES:
            del self._notes[next(iter(self._notes))]
        return value

    def of_epoch(self, epoch: int) -> int | None:
        """The fingerprint of this epoch (from 0) of the newest iterator; None if it was not noted."""
        return self._notes.get((self._iterator, epoch))


def compare(log: FingerprintLog, epoch: int, communicator: Communicator) -> None:
    """Compares the fingerprints of an epoch of the newest iterator over ranks. Collective.

    Raises:
        DesynchronizedError: some rank read another batch; names the ranks and the usual causes.
    """
    own = log.of_epoch(epoch)
    everyones = communicator.all_gather(np.array([[own is not None, own or 0]], np.int64))
    chief_noted, chiefs = everyones[0][0]
    different = [rank for rank, [[noted, theirs]] in enumerate(everyones) if noted and chief_noted and theirs != chiefs]
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
