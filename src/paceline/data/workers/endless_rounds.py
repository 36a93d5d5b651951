"""What a data worker makes for several ranks that read in turn: a dataset without end, in rounds (`served_batches.py`).

    rows of rank 0 │ rank 1 ║ rank 0 │ rank 1 ║ … ║ end │ end ║ rank 0 │ rank 1 ║ …

tf.data's service wants it endless: a producer that ended for one consumer first would leave the others waiting.
"""

from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.batch_rows import local_slice
from paceline.data.own_rows.division import own_part

ENDLESS = 1 << 62


def parts_of_batches(spec: Any) -> tuple[Any, ...]:
    """Of what a data worker sends for a batch of this spec: whether it is one, and its tensors."""
    parts = tf.nest.flatten(spec, expand_composites=True)
    rows = tf.TensorShape([None])
    loose = [
        tf.TensorSpec(rows.concatenate(one.shape[1:]) if one.shape.rank else one.shape, one.dtype) for one in parts
    ]
    return (tf.TensorSpec([], tf.bool), *loose)


def endless_rounds(given: Any, size: int, epoch: int, first: int, stride: int) -> Any:
    """Without end: an element for each rank in turn, for each batch, and for the end of each epoch.

    Args:
        given: The script's dataset.
        size: Number of ranks.
        epoch: The first that is read, by the number of its iterator.
        first: Its first batch.
        stride: Every so many iterators one is read.
    """
    specs = parts_of_batches(given.element_spec)[1:]
    do_not_convert = tf.autograph.experimental.do_not_convert
    zero, one, endless = (tf.constant(number, tf.int64) for number in (0, 1, -1))
    # A shuffle draws its seeds with its iterator, but one below another draws with the first element of that.
    kinds = [compat.kind_of(stage) for stage in compat.with_sources(given)]
    num_read = one if sum("Shuffle" in kind for kind in kinds) > 1 else zero
    if "Repeat" in kinds and int(given.cardinality()) >= 0:  # a shuffle below it draws for each repetition
        num_read = endless

    def parts_of(*element: Any) -> Any:
        batch = element if isinstance(given.element_spec, tuple) else element[0]

        def part(rank: Any) -> Any:
            def slice_of(rows: Any) -> Any:
                return local_slice(
                    rows, tf.cast(rank, rows.dtype) if tf.is_tensor(rows) else tf.cast(rank, tf.int32), size
                )

            own = batch if size == 1 else tf.nest.map_structure(lambda leaf: own_part(leaf, slice_of), batch)
            return (True, *tf.nest.flatten(own, expand_composites=True))

        return tf.data.Dataset.range(size).map(do_not_convert(part))

    nothing = (False, *(tf.zeros([size or 0 for size in one.shape], one.dtype) for one in specs))
    end = tf.data.Dataset.from_tensors(nothing)

    def of_epoch(number: Any) -> Any:
        is_before, is_read = number < epoch, (number - epoch) % stride == 0
        batches = given.skip(tf.where(number == epoch, tf.constant(first, tf.int64), zero))
        wanted = tf.where(is_read, tf.where(is_before, num_read, endless), zero)
        chosen = tf.data.Dataset.from_tensors(zero).repeat(wanted)
        read = tf.data.Dataset.choose_from_datasets([batches], chosen, stop_on_empty_dataset=True)
        parts = read.flat_map(do_not_convert(parts_of)).filter(do_not_convert(lambda *_: number >= epoch))
        return parts.concatenate(end.repeat(tf.where(is_before | ~is_read, zero, tf.constant(size, tf.int64))))

    options = tf.data.Options()
    options.deterministic = True
    return tf.data.Dataset.range(ENDLESS).flat_map(do_not_convert(of_epoch)).with_options(options)
