"""Data of which single rows can be read: `records` of TFRecord files, `rows` of anything with a length and rows.

No shuffle buffer, no order that is made before, no reading up to a position: where a row is in an epoch is computed
(`epoch_order.py`), so each worker reads its own rows only, and a run that resumes goes on at once.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, get_args

import numpy as np
import tensorflow as tf

from paceline.data.indexed.compressed_records import batches_of_compressed_files
from paceline.data.indexed.epoch_order import EpochOrder, Shuffle
from paceline.data.indexed.index_source import IndexSource
from paceline.data.indexed.readings import number_of_new_source
from paceline.data.indexed.record_files import CheckSums, OnError, RecordFiles
from paceline.data.indexed.record_index import compression_of
from paceline.data.indexed.row_parsers import batch_parser


class Rows(Protocol):
    """What `rows` reads: a list, an array, a data set of another library."""

    def __len__(self) -> int:
        """How many rows there are."""

    def __getitem__(self, row: int, /) -> Any:
        """A row: arrays and numbers, alone or in tuples and dicts, of the same shapes and dtypes in each row."""


def records(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    parse: Callable[..., Any] | None,
    batch_size: int,
    *,
    shuffle: Shuffle = False,
    seed: int = 0,
    drop_remainder: bool = False,
    on_error: OnError = "raise",
    check_sums: CheckSums = "once",
) -> Any:
    """Batches of the records of TFRecord files; each worker reads and parses its own rows of each.

        files = sorted(glob.glob("day-*.tfrecord"))
        train = paceline.data.records(files, parse, batch_size=64, shuffle=True)
        model.fit(train, epochs=10)

    All ranks call it alike. The global batches are the same for any number of workers.

    Args:
        files: Paths of TFRecord files, in the same order on all hosts. If they are compressed (GZIP or ZLIB), whole
            files are dealt to the workers and read in sequence: the batches hold other rows than those of one worker.
        parse: Takes a record (string scalar), or a record and its seed, and returns tensors of the same shapes for each
            record, alone or in tuples and dicts. The seed (int64, shape [2]) is for `tf.random.stateless_*`; each
            record has another one in each epoch. Traced once. None: the batches are string vectors of records.
        batch_size: Rows of a global batch.
        shuffle: True: each epoch has another order of all records. ``"blocks"``: runs of 256 records stay together, in
            another order in each epoch; for disks that read from many places slowly.
        seed: Other orders for another number.
        drop_remainder: Leaves out a last batch that is not full.
        on_error: What to do with a damaged record: ``"raise"``, or ``"skip"`` it, and behind a damaged length the rest
            of its file. To skip, all files are read once before the first step.
        check_sums: When the data of a record are compared with their check sum: ``"once"``, where this process first
            reads it; ``"always"``, in each epoch; or ``"never"``. Compressed files: always.

    Returns:
        A `tf.data.Dataset`. Maps behind it that take whole batches run on all rows on every worker, unless
        `paceline.data.element_wise` says that they have a row for each row.

    Raises:
        ValueError: a file is missing, damaged, has no records, or is compressed and others are not; or `parse` draws
            random numbers, or returns something else than dense tensors.
    """
    paths = [os.fspath(path) for path in ([files] if isinstance(files, str | os.PathLike) else files)]
    for name, value, known in (("on_error", on_error, OnError), ("check_sums", check_sums, CheckSums)):
        if value not in get_args(known):
            raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, get_args(known)))} [row-source]")
    _check(EpochOrder(0, shuffle, seed), batch_size)
    if compression := compression_of(paths):
        if on_error == "skip":
            raise ValueError(
                f"on_error='skip': the files are compressed ({compression}), and what is behind a damaged byte cannot "
                "be read. Leave it out, and leave out damaged files [record-file]"
            )
        return batches_of_compressed_files(
            paths, compression, parse, batch_size, shuffle=shuffle, seed=seed, drop_remainder=drop_remainder
        )
    found = RecordFiles(paths, on_error, check_sums)
    if not len(found):
        raise ValueError(f"there are no records in the {len(paths)} files [row-source]")
    spec = tf.TensorSpec([], tf.string)
    parsed, parsed_spec = (None, spec) if parse is None else batch_parser(parse)
    return _dataset(
        EpochOrder(len(found), shuffle, seed),
        batch_size,
        drop_remainder,
        begin_epoch=found.check_unchanged,
        read=lambda numbers: [np.array([*found.read(numbers), None], object)[:-1]],  # None: never an array of bytes
        rows_at_once=found.rows_at_once,
        read_spec=(spec,),
        parse=parsed,
        element_spec=parsed_spec,
        number=number_of_new_source(),
        name="records",
        facts=tuple(found.facts),
    )


def rows(
    source: Rows,
    batch_size: int,
    *,
    shuffle: Shuffle = False,
    seed: int = 0,
    drop_remainder: bool = False,
) -> Any:
    """Batches of the rows of a Python object; each worker asks for its own rows of each.

        train = paceline.data.rows(images, batch_size=64, shuffle=True)   # images[row] is (image, label)
        model.fit(train, epochs=10)

    All ranks call it alike. The global batches are the same for any number of workers. Rows are asked for one
    after the other, ahead of the steps.

    Args:
        source: Has `len(source)` rows, and `source[row]` is one, from 0: arrays and numbers, alone or in tuples and
            dicts, of the same shapes and dtypes in each row.
        batch_size: As in `records`, and so are the others.
        shuffle: See there.
        seed: See there.
        drop_remainder: See there.

    Returns:
        A `tf.data.Dataset`, as `records` does.

    Raises:
        ValueError: there are no rows, or the first or last one cannot be read or is unlike the other.
    """
    return batches_of_rows(source, batch_size, shuffle=shuffle, seed=seed, drop_remainder=drop_remainder)


def batches_of_rows(
    source: Rows,
    batch_size: int,
    *,
    drop_remainder: bool,
    shuffle: Shuffle = False,
    seed: int = 0,
    number: int | None = None,
    name: str = "rows",
) -> Any:
    """As `rows`, whose number and name are given, too (`IndexSource`); a number that is not given is a new one."""
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise ValueError(
            f"received {type(source).__name__}; expected an object with len(source) and source[row], such as a list "
            "or an array [row-source]"
        )
    if told := _not_rows(source):
        raise ValueError(f"{told} [row-source]")
    num_rows = len(source)
    if not num_rows:
        raise ValueError("the source has no rows: len(source) is 0 [row-source]")
    first, last = (_row_of(source, number, num_rows) for number in (0, num_rows - 1))
    examples = tf.nest.flatten(first)
    for one in examples:
        if one.dtype == object and (kinds := {type(part).__name__ for part in one.flat} - {"str", "bytes"}):
            raise ValueError(
                f"row 0 of the source has a list of {', '.join(sorted(kinds))}: a list is an array of numbers or text. "
                "Let the row be a tuple or a dict of its components [row-source]"
            )
    _check_alike(tf.nest.flatten(last), examples, num_rows - 1)
    one_thread = threading.Lock()  # sources that read files with `seek` are no good for two

    def read(numbers: Any) -> list[Any]:
        columns: list[list[Any]] = [[] for _ in examples]
        for number in numbers.tolist():
            with one_thread:
                arrays = tf.nest.flatten(_arrays(source[number]))
            _check_alike(arrays, examples, number)
            for column, array in zip(columns, arrays, strict=True):
                column.append(array)
        return [
            np.stack(column).astype(_dtype(one), copy=False) if column else np.empty((0, *one.shape), _dtype(one))
            for column, one in zip(columns, examples, strict=True)
        ]

    specs = [tf.TensorSpec(one.shape, tf.as_dtype(_dtype(one))) for one in examples]
    return _dataset(
        EpochOrder(num_rows, shuffle, seed),
        batch_size,
        drop_remainder,
        begin_epoch=lambda: None,
        read=read,
        rows_at_once=1,  # a row may take long
        read_spec=tuple(specs),
        parse=None,
        element_spec=tf.nest.pack_sequence_as(first, specs),
        number=number_of_new_source() if number is None else number,
        name=name,
        facts=(f"{type(source).__name__} of {num_rows} rows", *map(_digest, (first, last))),
    )


def _dataset(order: EpochOrder, batch_size: int, drop_remainder: bool, *, facts: tuple[str, ...], **source: Any) -> Any:
    _check(order, batch_size)
    how = f"shuffle={order.shuffle!r}, seed={order.seed}, batch_size={batch_size}, drop_remainder={drop_remainder}"
    return IndexSource(
        order=order,
        batch_size=batch_size,
        drop_remainder=drop_remainder,
        facts=(how, *facts),
        **source,
    ).dataset()


def _check(order: EpochOrder, batch_size: int) -> None:
    for name, number in (("batch_size", batch_size), ("seed", order.seed)):
        if not hasattr(number, "__index__"):
            raise ValueError(f"{name}={number!r}: expected an integer [row-source]")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: a batch has at least one row [row-source]")
    if not isinstance(order.shuffle, bool) and order.shuffle != "blocks":
        raise ValueError(
            f"shuffle={order.shuffle!r}: expected True, False or 'blocks'. There is no buffer whose size could be said "
            "[row-source]"
        )


def _not_rows(source: Any) -> str:
    """What to tell of a source whose items are something else than rows; empty: they are not known to be."""
    kinds = {kind.__name__ for kind in type(source).__mro__}
    if isinstance(source, tuple):
        return (
            f"received a tuple of {len(source)}: if these are columns, rows need an object whose items are rows, such "
            "as list(zip(x, y)), or a class whose __getitem__(row) returns (x[row], y[row]); NumPy arrays can go to "
            "model.fit(x, y) as they are. If they are rows, give list(source)"
        )
    if "PyDataset" in kinds:
        return (
            f"the items of a PyDataset ({type(source).__name__}) are batches, not rows: give it to model.fit as it is, "
            "or rows an object whose __getitem__(row) returns one row"
        )
    if "BatchMapDataset" in kinds:
        return "the items of this Grain data set are batches, not rows: leave out its .batch(…), as rows makes batches"
    return ""


def _arrays(row: Any) -> Any:
    """A row in arrays: tuples and dicts stay, a list is an array."""
    if isinstance(row, dict):
        return {name: _arrays(part) for name, part in row.items()}
    if isinstance(row, tuple):
        return tuple(map(_arrays, row))
    return np.asarray(row)


def _row_of(source: Rows, number: int, num_rows: int) -> Any:
    try:
        return _arrays(source[number])
    except Exception as fault:
        raise ValueError(
            f"len(source) is {num_rows}, but source[{number}] raises {type(fault).__name__}: {fault}. Rows are "
            "counted from 0, and all below the length must be there [row-source]"
        ) from fault


def _check_alike(arrays: Sequence[Any], examples: Sequence[Any], number: int) -> None:
    if [(one.shape, _dtype(one)) for one in arrays] != [(one.shape, _dtype(one)) for one in examples]:
        raise ValueError(
            f"row {number} of the source is {_shapes(arrays)}, but row 0 is {_shapes(examples)}. All rows need the "
            "same components, shapes and dtypes [row-source]"
        )


def _dtype(array: Any) -> Any:
    return object if array.dtype.kind in "OSU" else array.dtype


def _shapes(arrays: Sequence[Any]) -> str:
    return ", ".join(f"{one.dtype} {one.shape}" for one in arrays)


def _digest(row: Any) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in tf.nest.flatten(row):
        digest.update(f"{part.shape} {part.dtype}".encode())
        digest.update(repr(part.tolist()).encode() if part.dtype == object else part.tobytes())
    return digest.hexdigest()
