"""This rank's rows of each batch, made without the others': chosen first, mapped then.

    global batches, raw     [0 1 2 3] [4 5 6 7] [8]        rank 1 of 2
    the rank's rows          2 3       6 7       8*        * a stand-in, where the rank has no row of a batch
    mapped, as one stream    a b       c d       e*
    put together again      [a b]     [c d]     []         one batch for each global one; stand-ins are left out

As one stream, so that parallel maps and prefetches work across batches, as the script has them. A batch that
may be shorter and not the last (before a `repeat`, or shuffled) is filled with stand-ins: the stream is cut every so
many rows. Where shares change, each row carries the number of its batch, and of the rows there.

Of the batches that are compared over ranks, all raw rows are noted, and what the maps make of the first one.
"""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.batch_rows import local_slice
from paceline.data.fingerprint import FingerprintLog
from paceline.data.own_rows.division import AnyDivision, alike
from paceline.data.own_rows.orders import in_order_of
from paceline.data.own_rows.row_wise import fixed_rows, rows_of_map
from paceline.data.own_rows.share_table import ShareTable, cut_of
from paceline.data.own_rows.staying_maps import MAPS, name_of_map


@dataclass(frozen=True, slots=True)
class RowMap:
    """A map that works on single rows."""

    dataset: Any
    """The stage in the script's dataset."""
    first: int
    """Where its first argument stands among the tensors of a row."""


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """A prefetch."""

    elements: int


@dataclass(frozen=True, slots=True)
class Division(AnyDivision):
    """Rows are chosen first, and mapped then."""

    rows: Any
    """A dataset of single rows, without the maps; None: the maps before the batch, if any, stay."""
    batch: Any
    """The batch stage of the script's dataset."""
    row_steps: tuple[RowMap | ReadAhead, ...]
    """What is done with single rows of this rank."""
    order: tuple[Any, ...]
    """Stages behind the batch that choose and repeat batches, in this order."""
    batch_steps: tuple[Any, ...]
    """Maps behind the batch that have a row for each row, and prefetches, in this order."""
    stays: str = ""

    @property
    def work(self) -> str:
        """See `AnyDivision`."""
        return f"every rank reads all data, and maps ({', '.join(self.mapped)}) and computes its rows of each batch"

    @property
    def form(self) -> str:
        """See `AnyDivision`."""
        kinds = [type(step).__name__ for step in self.row_steps]
        behind = [compat.kind_of(one) for one in (*self.order, *self.batch_steps)]
        return f"own rows 2: {','.join(kinds)} | {','.join(behind)}"

    @property
    def maps(self) -> list[Any]:
        """The stages whose functions this rank calls for its own rows only."""
        of_rows = [step.dataset for step in self.row_steps if isinstance(step, RowMap)]
        return [*of_rows, *(one for one in self.batch_steps if compat.kind_of(one) in MAPS)]

    @property
    def mapped(self) -> list[str]:
        """The names of these functions."""
        return [name_of_map(one) for one in self.maps]

    @property
    def follows_table(self) -> bool:
        """See `AnyDivision`: maps that were traced for so many rows are called for as many."""
        return not any(fixed_rows(one) for one in self.batch_steps if compat.kind_of(one) in MAPS)

    def batches(
        self, dataset: Any, rank: int, size: int, log: FingerprintLog | None, table: ShareTable | None = None
    ) -> Any:
        """See `AnyDivision`."""
        batches, given = self.batch, compat.options_of_batch(self.batch)
        assert given is not None
        given = in_order(given)
        if self.rows is not None:
            batches = self.rows.batch(**given)
        for one in self.order:
            batches = in_order_of(one, batches)
        first, end = local_slice(given["batch_size"], rank, size)
        width = max(end - first, 1)
        stays_last = all(compat.kind_of(one) in ("Take", "Skip") for one in self.order)
        is_filled = table is None and not (given["drop_remainder"] or stays_last)

        # No Python `if` in it depends on a tensor.
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def chosen(index: Any, element: Any) -> Any:
            flat = tf.nest.flatten(element)
            noted = [] if log is None else [log.note(index, element, lambda: _first_row_mapped(self, flat))]
            with tf.control_dependencies(noted):
                rows = tf.shape(flat[0], tf.int64)[0]
                begin, end = cut_of(table, index, rank, size)(rows)
                if self.rows is None:
                    return tuple(tensor[begin:end] for tensor in flat)
                wanted = tf.constant(width, tf.int64) if is_filled else tf.maximum(end - begin, 1)
                is_own = tf.range(wanted) < end - begin
                if table is not None:
                    is_own = _marks(index, wanted, is_own)
                if is_filled:
                    at = tf.minimum(begin + tf.range(wanted), rows - 1)
                    return (is_own, *(tf.gather(tensor, at) for tensor in flat))
                begin = tf.minimum(begin, rows - 1)
                return (is_own, *(tensor[begin : begin + wanted] for tensor in flat))

        own = batches.enumerate().map(chosen)
        if self.rows is not None:
            own = _mapped(own.unbatch(), self)
            if table is None:
                own = own.batch(**{**given, "batch_size": width, "drop_remainder": False}).map(_own_only)
            else:
                own = own.group_by_window(_batch_of, _together, window_size_func=_rows_in).map(_marked_only)
        static = end - first if given["drop_remainder"] and table is None else None
        return alike(_behind_batch(own, self, range(first, end), static), dataset)


_BITS_OF_ROWS = 24


def _marks(number: Any, num_rows: Any, is_own: Any) -> Any:
    """For each row: the number of its batch, how many rows there are, and whether it is no stand-in; int64."""
    return (number * (1 << _BITS_OF_ROWS) + num_rows) * 2 + tf.cast(is_own, tf.int64)


# These have no Python `if`.


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _batch_of(mark: Any, *flat: Any) -> Any:
    del flat
    return mark // 2


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _rows_in(batch: Any) -> Any:
    return batch % (1 << _BITS_OF_ROWS)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _together(batch: Any, rows: Any) -> Any:
    return rows.batch(_rows_in(batch))


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _marked_only(marks: Any, *flat: Any) -> Any:
    return _own_only(marks % 2, *flat)


def _behind_batch(own: Any, division: Division, rows: range, static_rows: int | None) -> Any:
    spec = division.batch.element_spec
    for one in division.batch_steps:
        if compat.kind_of(one) == "Prefetch":
            own = own.prefetch(compat.read_ahead_of(one))
        else:
            own = own.map(_calling_on_rows(one, rows), **in_order(compat.options_of_map(one)))
            spec = one.element_spec
    return own.map(packing(spec, static_rows))


def _first_row_mapped(division: Division, flat: list[Any]) -> list[Any]:
    """What the maps make of the first row of a raw batch: as a batch of one row."""
    row = [tensor[:1] for tensor in flat]
    maps = [step for step in division.row_steps if not isinstance(step, ReadAhead)]
    if maps:
        row = [tensor[0] for tensor in row]
        for step in maps:
            row = called(step.dataset, step.first, row)
        row = [tensor[tf.newaxis] for tensor in row]
    for one in division.batch_steps:
        row = row if compat.kind_of(one) == "Prefetch" else rows_of_map(one, range(1), row)
    return row


def _mapped(rows: Any, division: Division) -> Any:
    for step in division.row_steps:
        if isinstance(step, ReadAhead):
            rows = rows.prefetch(step.elements)
        else:
            rows = rows.map(_calling(step.dataset, 1 + step.first), **in_order(compat.options_of_map(step.dataset)))
    return rows


def in_order(options: dict[str, Any]) -> dict[str, Any]:
    """These options of a map or batch, whose order all ranks must share."""
    return {**options, "deterministic": True} if "deterministic" in options else options


def called(one: Any, at: int, flat: list[Any]) -> list[Any]:
    """The tensors of a row of which the traced function of a map has replaced its arguments, from `at`."""
    function = compat.traced_function_of(one)
    end = at + len(function.inputs) - len(function.captured_inputs)
    return [*flat[:at], *function(*flat[at:end]), *flat[end:]]


def _calling(one: Any, at: int) -> Any:
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(*flat: Any) -> Any:
        return tuple(called(one, at, list(flat)))

    return call


def _calling_on_rows(one: Any, rows: range) -> Any:
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def call(*flat: Any) -> Any:
        return tuple(rows_of_map(one, rows, list(flat)))

    return call


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def _own_only(is_own: Any, *flat: Any) -> Any:
    rows = tf.math.count_nonzero(is_own)
    return tuple(tensor[:rows] for tensor in flat)


def packing(spec: Any, static_rows: int | None) -> Any:
    """From the tensors of a batch to a batch as the script has it, with what is known of its shapes: a function."""
    leaves = tf.nest.flatten(spec)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def packed(*flat: Any) -> Any:
        tensors = iter(flat)
        parts = [next(tensors) if isinstance(leaf, tf.TensorSpec) else None for leaf in leaves]
        for tensor, leaf in zip(parts, leaves, strict=True):
            if tensor is not None:
                tensor.set_shape([static_rows, *leaf.shape[1:]])
        return tf.nest.pack_sequence_as(spec, parts)

    return packed
