"""Compressed TFRecord files, in which no record has a place: whole files are dealt to the ranks, and read in sequence.

The batches are not those of one worker, so this is the policy FILE (`auto_shard.py`), with all that belongs to it: who
runs out goes on with empty batches (`uneven.py`), and a run that resumes reads again up to its position.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.data.faults import note_files_of
from paceline.data.indexed.epoch_order import Shuffle
from paceline.data.indexed.row_parsers import batch_parser, takes_seed
from paceline.data.own_rows.auto_shard import shard

_LOGGER = logging.getLogger("paceline")

SHUFFLED_ROWS = 4096
"""A rank's rows among which the next one is drawn."""


def batches_of_compressed_files(
    paths: Sequence[str],
    compression: str,
    parse: Callable[..., Any] | None,
    batch_size: int,
    *,
    shuffle: Shuffle,
    seed: int,
    drop_remainder: bool,
) -> Any:
    """As `records`, of files that are all compressed in this way (``"GZIP"`` or ``"ZLIB"``).

    Raises:
        ValueError: `parse` takes a seed: rows have no numbers that one could follow from.
    """
    if parse is not None and takes_seed(parse):
        raise ValueError(
            f"the files are compressed ({compression}), so rows have no numbers from which seeds could follow. Write "
            "the files without compression, or let parse take the record only, and draw in layers of the model "
            "[record-file]"
        )
    _LOGGER.info(
        "%d files are compressed (%s): several workers read whole files of their own in sequence, and their batches "
        "hold other rows than those of one worker",
        len(paths),
        compression,
    )
    files = tf.data.Dataset.from_tensor_slices(list(paths))
    if shuffle:
        files = files.shuffle(len(paths), seed)
    rows = files.flat_map(lambda path: tf.data.TFRecordDataset(path, compression))
    note_files_of(rows)
    if shuffle is True:
        rows = rows.shuffle(SHUFFLED_ROWS, seed)
    batches = rows.batch(batch_size, drop_remainder)
    return shard(batches if parse is None else batches.map(_parser(parse), tf.data.AUTOTUNE), "file")


def _parser(parse: Callable[..., Any]) -> Any:
    of_rows, spec = batch_parser(parse)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def parsed(records: Any) -> Any:
        flat = of_rows(records, tf.zeros([tf.shape(records)[0], 2], tf.int64))
        for part, leaf in zip(flat, tf.nest.flatten(spec), strict=True):
            part.set_shape([records.shape[0], *leaf.shape])
        return tf.nest.pack_sequence_as(spec, flat)

    return parsed
