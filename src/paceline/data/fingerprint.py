"""Proof that all ranks read the same data: a fingerprint of each epoch's first global batch, compared over ranks.

Slicing a global batch is exact only if it is the same batch everywhere. The fingerprint is taken inside the input
pipeline, before the slice, and noted in a log on the Python side; `compare` then meets the others. Only the first batch
of an epoch is hashed, so the cost does not grow with the data. Iterators over a Python generator all begin with the
batches that Keras has looked at, wherever the generator stands by then: of those, the first one behind is hashed, too.

Each component of a batch is hashed by itself. Random numbers that are drawn in a parallel map go to other elements on
each rank, though the elements keep their order: the images then differ and the labels do not. Each rank computes its
own rows all the same, so such a job is told about, not stopped. In a pipeline without chance (`draws_by_chance`)
the same picture means other rows: labels repeat themselves, and each host may list its files in an order of its own.
"""

import hashlib
import logging
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.group import Array, Group
from paceline.comm.script_lines import lines_of_ranks
from paceline.data.compat import kind_of, operations_of_functions, with_sources
from paceline.errors import DesynchronizedError

_LOGGER = logging.getLogger("paceline")

_HASHED_BYTES = 1 << 24
_KEPT_NOTES = 8
_IMAGE_AXES = 3

DRAWS = re.compile(
    "Random(?!Dataset|SeedGenerator|IndexShuffle)|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial"
    "|Stateful(?!PartitionedCall)|RngReadAndSkip|SampleDistortedBoundingBox|(Eager)?PyFunc|Assign.*VariableOp"
)
"""Types of operations that draw from a state of TensorFlow's, may draw from one of Python's, or count (as Keras's
augmentation layers do, for a seed)."""

_PARALLEL = re.compile("_?(Legacy)?(Parallel(Map|Interleave)|MapAndBatch)")
"""Types of datasets, as classes and as operations, that call their function in several threads."""


@dataclass(frozen=True, slots=True)
class Part:
    """The fingerprint of one component of a batch (of a ragged or sparse one: of one of its tensors)."""

    digest: int
    is_measured: bool
    """Whether it is of the kind that augmentation changes: floating numbers, or images of bytes."""
    tells_rows_apart: bool
    """Whether its rows are not all alike: only then do equal fingerprints say that the rows are the same."""


class FingerprintLog:
    """The fingerprints that one dataset has noted: of those batches of each iterator over it that are compared.

    They are found by number, not by order: a rank that reads ahead may have noted an epoch that never comes.

    Args:
        draws_by_chance: Says whether chance decides which element gets which random number; asked at a difference only.
        steps_per_epoch: Batches after which an epoch begins in a dataset that goes on; None: at its start only.
        num_repeated: Batches with which every iterator begins, wherever its source stands.
        is_sharded: Says whether the script divides the data itself; asked at a difference only.
    """

    def __init__(
        self,
        draws_by_chance: Callable[[], bool] = lambda: False,
        steps_per_epoch: int | None = None,
        num_repeated: int = 0,
        is_sharded: Callable[[], bool] = lambda: False,
    ) -> None:
        self.draws_by_chance = draws_by_chance
        self.is_sharded = is_sharded
        self._steps_per_epoch = steps_per_epoch
        self._num_repeated = num_repeated
        self._iterator = 0
        self._notes: dict[tuple[int, int], tuple[Part, ...]] = {}
        self.has_warned = False
        """Whether it has been said that ranks augment differently."""

    def new_iterator(self) -> None:
        """A new iterator over the dataset is about to be made."""
        self._iterator += 1

    def is_compared(self, index: Any) -> Any:
        """Whether the batch of this number in its iterator (an int or an integer scalar tensor) is one to compare."""
        position = index if self._steps_per_epoch is None else index % self._steps_per_epoch
        is_first = position == 0
        return is_first | (index == self._num_repeated) if self._num_repeated else is_first

    def note(self, index: Any, element: Any, also: Callable[[], Sequence[Any]] = tuple, *, by_row: bool = False) -> Any:
        """An operation that notes `element`'s fingerprint if that of number `index` (int64 scalar) is compared.

        Args:
            index: The number of the batch.
            element: What is compared of it.
            also: Makes tensors that are compared, too.
            by_row: Whether the first axis of these is the rows of the batch.
        """
        components = [part for leaf in tf.nest.flatten(element) for part in _components(leaf)]
        # TensorFlow keeps each function of Python's that a dataset calls until the process ends; not with it the data.
        noting = weakref.ref(self)

        def take() -> Any:
            noted = [*components, *((tensor, by_row) for tensor in also())]
            has_rows = [is_by_row for _, is_by_row in noted]

            def take_note(index: Any, *arrays: Any) -> Any:
                log = noting()
                return np.int64(0 if log is None else log.take(int(index), tuple(map(_part, arrays, has_rows))))

            # Stateless for TensorFlow: a stateful function would forbid saving the iterator's position.
            tensors = [tensor for tensor, _ in noted]
            return tf.numpy_function(take_note, [index, *tensors], tf.int64, stateful=False)

        return tf.cond(self.is_compared(index), take, lambda: tf.constant(0, tf.int64))

    def take(self, index: int, parts: Sequence[Part]) -> int:
        """Notes the fingerprints of the batch of this number; returns how many they are."""
        self._notes[self._iterator, index] = tuple(parts)
        while len(self._notes) > _KEPT_NOTES:
            del self._notes[next(iter(self._notes))]
        return len(parts)

    def of_batch(self, index: int) -> tuple[Part, ...] | None:
        """The fingerprints of this batch (from 0) of the newest iterator; None if it was not noted."""
        return self._notes.get((self._iterator, index))


def _components(leaf: Any) -> list[tuple[Any, bool]]:
    """The tensors of one component, each with whether its first axis counts rows, or values of rows."""
    if isinstance(leaf, tf.RaggedTensor):
        return [(leaf.flat_values, True), *((lengths, True) for lengths in leaf.nested_row_lengths())]
    if isinstance(leaf, tf.SparseTensor):
        return [(leaf.values, True), (leaf.indices, False), (leaf.dense_shape, False)]
    return [(leaf, leaf.shape.rank != 0)] if tf.is_tensor(leaf) else []


def parts_of(leaves: Iterable[Any]) -> list[Part]:
    """The fingerprints of arrays that have rows."""
    return [_part(leaf, True) for leaf in leaves]


def _part(leaf: Any, is_by_row: bool) -> Part:
    array = np.asarray(leaf)
    digest = hashlib.blake2b(f"{array.shape} {array.dtype}".encode(), digest_size=7)
    if array.dtype == object:
        digest.update(repr(_without_directory(array.reshape(-1)[:1024].tolist())).encode())
    else:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8)[:_HASHED_BYTES].data)
    is_image = array.dtype == np.uint8 and array.ndim >= _IMAGE_AXES
    is_floating = tf.as_dtype(array.dtype).is_floating  # bfloat16 is no kind of NumPy's
    return Part(
        digest=int.from_bytes(digest.digest(), "little"),
        is_measured=is_floating or is_image,
        tells_rows_apart=bool(is_by_row and array.ndim and len(array)) and _tells_apart(array),
    )


def _without_directory(texts: list[bytes]) -> list[bytes]:
    """Paths without the directory that all of them are in: each worker may have the files in one of its own."""
    first, last = min(texts, default=b""), max(texts, default=b"")
    differ = (at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1])
    directory, _, _ = first[: next(differ, len(first))].rpartition(b"/")
    return [text[len(directory) :] for text in texts]


def _tells_apart(array: Array) -> bool:
    # Rows that were numbered after they had been shuffled have the same numbers in any order.
    is_count = array.dtype.kind in "iu" and array.ndim == 1 and len(array) > 1 and bool((np.diff(array) == 1).all())
    return not is_count and bool((array != array[:1]).any())


def compare(log: FingerprintLog, index: int, group: Group) -> None:
    """Compares the fingerprints of a batch of the newest iterator over ranks. Collective.

    Raises:
        DesynchronizedError: some rank read another batch; names the ranks and the usual causes.
    """
    own = [[part.digest, part.is_measured, part.tells_rows_apart] for part in log.of_batch(index) or ()]
    everyones = group.all_gather(np.array(own, np.int64).reshape(-1, 3))
    chiefs = everyones[0]
    noted = {rank: parts for rank, parts in enumerate(everyones) if len(parts) and len(chiefs)}
    different = [rank for rank, parts in noted.items() if not np.array_equal(parts, chiefs)]
    if not different:
        return
    if all(may_be_same_rows(chiefs, noted[rank]) for rank in different) and _any_draws_by_chance(log, group):
        if group.rank == 0 and not log.has_warned:
            _LOGGER.warning("%s", other_draws(different))
        log.has_warned = True
        return
    raise DesynchronizedError(
        "the ranks read different data: the first global batch of an epoch differs between rank 0 and rank(s) "
        f"{_listed(different)}. {_SHARDED if _any_is_sharded(log, group) else _USUAL_CAUSES} "
        f"{lines_of_ranks(group)} [data-differs]"
    )


_SHARDED = (
    "The dataset calls `.shard(...)`, which gives each rank other rows. Fix: leave it out. Every rank reads the whole "
    "dataset, and Paceline gives each its rows of each batch."
)
_USUAL_CAUSES = (
    "Usual causes: a shuffle or augmentation in Python or NumPy with another seed on each rank; files that are listed "
    "in another order on each host; random numbers in a parallel map, or in a PyDataset with workers; a dataset that "
    "the script divides. Set a seed: keras.utils.set_random_seed(1) at the top of the script; sort files; draw by "
    "tf.random.stateless_* in a parallel map."
)


def _any_is_sharded(log: FingerprintLog, group: Group) -> bool:
    """Whether a rank divides its data itself; all ranks say the same, so that it is said once. Collective."""
    return any(answer.any() for answer in group.all_gather(np.array([log.is_sharded()], np.int64)))


def _any_draws_by_chance(log: FingerprintLog, group: Group) -> bool:
    return any(answer.any() for answer in group.all_gather(np.array([log.draws_by_chance()], np.int64)))


def may_be_same_rows(chiefs: Array, others: Array) -> bool:
    """Whether nothing in two different batches says that their rows differ: what no augmentation changes is equal."""
    if len(chiefs) != len(others):
        return False
    equal = chiefs[:, 0] == others[:, 0]
    is_measured, tells_rows_apart = chiefs[:, 1].astype(bool), chiefs[:, 2].astype(bool)
    return bool((equal | is_measured).all() and (equal & tells_rows_apart).any())


def other_draws(ranks: list[int]) -> str:
    """What a user is told whose ranks augment differently."""
    return (
        f"rank(s) {_listed(ranks)} read the same labels (or text, or integers) as rank 0, but other "
        "floating-point numbers or images. Probably random augmentation in a parallel map, or in a PyDataset "
        "with workers: which element gets which random numbers depends on thread timing. The run then cannot be "
        "repeated exactly; nor could a run on one worker. Paceline cannot check that the ranks read the same "
        "rows: if the script lists files (os.listdir, glob), sort them, because each host lists files in its "
        "own order. To make the run exact and checked, use tf.random.stateless_* with a seed that is part of "
        "the element, a map without num_parallel_calls, or augmentation layers in the model."
    )


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))


def is_sharded(dataset: Any) -> bool:
    """Whether somewhere in a `tf.data.Dataset` is a `.shard(...)`; those in functions that it calls are not seen.

    >>> is_sharded(tf.data.Dataset.range(4).shard(2, 0).batch(2)), is_sharded(tf.data.Dataset.range(4))
    (True, False)
    """
    return any(kind_of(one) == "Shard" for one in with_sources(dataset))


def draws_by_chance(dataset: Any) -> bool:
    """Whether a parallel map or interleave somewhere in a `tf.data.Dataset` draws, or calls Python, which may draw.

    A random operation numbers its draws as they come, and the threads of a parallel map come in any order. The
    operations are looked for in the functions that the dataset was built of: nothing is read.
    """
    return any(_is_parallel_draw(one, types) for one in with_sources(dataset) for types in operations_of_functions(one))


def random_operations(dataset: Any) -> list[str]:
    """The types of operations that draw, or count, in functions of a `tf.data.Dataset`, and in those they call.

    Without calls of Python. Looked for as `draws_by_chance` does: that an operation has a state, as calls of functions
    and reading of variables and tables have for TensorFlow, does not say that numbers are drawn.
    """
    types = set().union(*(types for one in with_sources(dataset) for types in operations_of_functions(one)))
    return sorted(name for name in types if DRAWS.match(name) and "PyFunc" not in name)


def _is_parallel_draw(dataset: Any, types: Iterable[str]) -> bool:
    # Datasets inside a function (of a flat_map) are operations there.
    is_parallel = any(map(_PARALLEL.match, [type(dataset).__name__, *types]))
    return is_parallel and any(map(DRAWS.match, types))
