"""How a dataset of global batches is divided among ranks: where a rank's rows are chosen.

Out of `Whole` batches; before the maps (`own_rows.py`); before rows are gathered out of arrays (`array_batches.py`), or
read by their numbers (`index_batches.py`); as items are taken out of shared memory (`items/item_rings.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.cluster.row_shares import text_in
from paceline.data import compat
from paceline.data.batch_rows import checked_rows
from paceline.data.fingerprint import FingerprintLog
from paceline.data.foreign_memory import may_be_foreign, own_memory
from paceline.data.own_rows.replicated import wrapped
from paceline.data.own_rows.share_table import ShareTable, cut_of


class AnyDivision(ABC):
    """See the module."""

    stays: str
    """What is still done with all rows on every rank, and how to change that; empty: nothing that is worth a word."""

    @property
    @abstractmethod
    def work(self) -> str:
        """What each rank reads and makes, for a line of a log."""

    @property
    @abstractmethod
    def form(self) -> str:
        """What datasets of local batches must have in common, if an iterator over one is to have another's state."""

    @property
    def follows_table(self) -> bool:
        """Whether rows can be chosen by the shares of each batch."""
        return True

    @abstractmethod
    def batches(
        self, dataset: Any, rank: int, size: int, log: FingerprintLog | None, table: ShareTable | None = None
    ) -> Any:
        """A rank's rows of each batch of the dataset that is divided so: a `tf.data.Dataset` with its options.

        Args:
            dataset: Of global batches.
            rank: This rank.
            size: Number of ranks.
            log: Where to note fingerprints of global batches; None: nowhere.
            table: The shares of each batch; None: they stay.
        """


@dataclass(frozen=True, slots=True)
class Whole(AnyDivision):
    """Every rank makes whole batches.

    Args:
        stays: See `AnyDivision`.
        work: See `AnyDivision`.
        replicated: Which components every rank gets whole (`replicated.py`); empty: none.
    """

    stays: str = ""
    work: str = "every rank reads all data and computes its rows of each batch"
    replicated: tuple[bool, ...] = ()
    form = ""

    def batches(
        self, dataset: Any, rank: int, size: int, log: FingerprintLog | None, table: ShareTable | None = None
    ) -> Any:
        """See `AnyDivision`."""
        is_copied = may_be_foreign(dataset)

        # It has no Python `if` that depends on a tensor: rewriting it would take a second of each start.
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def local_rows(index: Any, element: Any) -> Any:
            bounds: list[Any] = []
            cut = cut_of(table, index, rank, size)

            def own(leaf: Any) -> Any:
                if not tf.is_tensor(leaf) or isinstance(leaf, tf.RaggedTensor | tf.SparseTensor) or _knows_rows(leaf):
                    return own_part(leaf, cut)
                if not bounds:  # vectors of one number; all that are divided have equally many rows
                    rows = tf.raw_ops.StridedSlice(input=tf.shape(leaf), begin=[0], end=[1], strides=[1])
                    bounds.extend(cut(rows))
                return tf.raw_ops.StridedSlice(input=leaf, begin=bounds[0], end=bounds[1], strides=[1])

            element = own_memory(element) if is_copied else element
            parts = wrapped(element, self.replicated) if self.replicated else element
            checked = checked_rows(parts)
            with tf.control_dependencies([] if checked is None else [checked]):
                noted = [] if log is None else [log.note(index, element)]
            with tf.control_dependencies([*noted, *([] if checked is None else [checked])]):
                return tf.nest.map_structure(own, parts)

        return dataset.enumerate().map(local_rows)


_DIVISION = "_paceline_division"


def divided_so(dataset: Any, division: AnyDivision) -> Any:
    """`dataset`, of a rank's batches, remembered to be divided so."""
    setattr(dataset, _DIVISION, division)
    return dataset


def division_in(dataset: Any) -> AnyDivision | None:
    """How the dataset of a rank's batches that `dataset` is, or is made of, is divided; None: it is made of none."""
    return next((getattr(one, _DIVISION) for one in compat.with_sources(dataset) if hasattr(one, _DIVISION)), None)


def form_of(dataset: Any) -> str:
    """The form of what `division_in` finds: see `AnyDivision`. What has been read ahead has rows by the same shares."""
    division = division_in(dataset)
    shares = text_in()
    return "" if division is None else f"{division.form}{shares and f' by {shares}'}"


def work_of(division: AnyDivision | None) -> str:
    """What each rank reads and makes, and what it would rather not make; for a line of a log."""
    if division is None:
        return ""
    return f"{division.work}; {division.stays}" if division.stays else division.work


def alike(own: Any, dataset: Any) -> Any:
    """`own`, a rank's batches of `dataset`, with its number of batches and its options."""
    if (batches := int(dataset.cardinality())) != tf.data.UNKNOWN_CARDINALITY:
        own = own.apply(tf.data.experimental.assert_cardinality(batches))
    return own.with_options(dataset.options())


def _knows_rows(leaf: Any) -> bool:
    """Whether the shape of a tensor has its number of rows, or has none."""
    return leaf.shape.rank is not None and (leaf.shape.rank == 0 or leaf.shape[0] is not None)


def rows_of(element: Any) -> Any:
    """int64 scalar: the rows of the first component that has any axis; 1 of scalars only."""
    for leaf in tf.nest.flatten(element):
        if isinstance(leaf, tf.RaggedTensor):
            return tf.cast(leaf.nrows(), tf.int64)
        if isinstance(leaf, tf.SparseTensor):
            return leaf.dense_shape[0]
        if (tf.is_tensor(leaf) and leaf.shape.rank != 0) or (isinstance(leaf, np.ndarray) and leaf.ndim):
            return tf.shape(leaf, tf.int64)[0]
    return tf.constant(1, tf.int64)


def own_part(leaf: Any, slice_of: Callable[[Any], tuple[Any, Any]]) -> Any:
    """The rows of one component that `slice_of` their number says; a scalar, or None, belongs to every rank."""
    if isinstance(leaf, tf.SparseTensor):
        begin, end = slice_of(leaf.dense_shape[0])
        others = leaf.dense_shape[1:]
        return tf.sparse.slice(
            leaf, tf.concat([[begin], tf.zeros_like(others)], 0), tf.concat([[end - begin], others], 0)
        )
    if isinstance(leaf, tf.RaggedTensor):
        begin, end = slice_of(leaf.nrows())
        return leaf[begin:end]
    if leaf is None:
        return None
    if not tf.is_tensor(leaf) or leaf.shape.rank == 0:
        return tf.identity(leaf)
    static_rows = leaf.shape[0] if leaf.shape.rank is not None else None
    begin, end = slice_of(tf.shape(leaf)[0] if static_rows is None else static_rows)
    return leaf[begin:end]
