"""Batches that several data workers make, each once in an epoch, for whichever rank asks first (dynamic sharding).

A data worker begins anew for each job, and so do the seeds of its shuffles: each epoch would have the order of the
first. So the job of an epoch makes some iterators that it does not read, each of which draws seeds.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from paceline.data import compat
from paceline.data.faults import keeps_fault
from paceline.data.freed_iterators import freed_in_thread
from paceline.data.indexed.readings import MadeIterators
from paceline.data.own_rows.division import Whole, divided_so

_ORDERS = 16
"""Behind so many epochs the shuffles begin again: the dispatcher keeps the dataset of each of them."""


def dealt_batches(given: Any, number: int, target: str, compression: str | None) -> Any:
    """The batches of `given` that this process gets; all ranks together get each batch once in an epoch.

    Args:
        given: The script's dataset.
        number: Of this source, in the order in which the script makes them.
        target: Of the dispatcher.
        compression: Of what is sent.

    Returns:
        A `tf.data.Dataset`, which no rule divides among the ranks a second time.
    """
    spec = given.element_spec
    parts = tf.nest.flatten(spec, expand_composites=True)
    types, shapes = [one.dtype for one in parts], [one.shape for one in parts]
    has_orders = any("Shuffle" in compat.kind_of(one) for one in compat.with_sources(given))
    reading = MadeIterators(number)
    live: list[Any] = []
    do_not_convert = tf.autograph.experimental.do_not_convert
    distribute = tf.data.experimental.service

    @keeps_fault
    def begin() -> Any:
        epoch, _ = reading.begin()
        order = epoch % _ORDERS if has_orders else 0
        identity = distribute.register_dataset(
            target, _in_order(given, order), compression, dataset_id=f"paceline-{number}-order-{order}"
        )
        batches = distribute.from_dataset_id(
            distribute.ShardingPolicy.DYNAMIC, target, identity, spec, job_name=f"epoch-{epoch}"
        )
        live[:] = [freed_in_thread(iter(batches.map(flat)))]
        return compat.resource_of(live[0])

    @do_not_convert  # type: ignore[untyped-decorator]
    def flat(*element: Any) -> Any:
        return tuple(tf.nest.flatten(element if isinstance(spec, tuple) else element[0], expand_composites=True))

    @do_not_convert  # type: ignore[untyped-decorator]
    def of_epoch(_: Any) -> Any:
        iterator = tf.py_function(begin, [], tf.resource)

        def next_of(_: Any) -> Any:
            return tf.raw_ops.IteratorGetNextAsOptional(iterator=iterator, output_types=types, output_shapes=shapes)

        found = tf.data.Dataset.range(np.int64(1 << 62)).map(do_not_convert(next_of))
        return found.take_while(do_not_convert(lambda one: tf.raw_ops.OptionalHasValue(optional=one)))

    @do_not_convert  # type: ignore[untyped-decorator]
    def value(optional: Any) -> Any:
        tensors = tf.raw_ops.OptionalGetValue(optional=optional, output_types=types, output_shapes=shapes)
        return tf.nest.pack_sequence_as(spec, tensors, expand_composites=True)

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dealt = tf.data.Dataset.from_tensors(np.int64(0)).flat_map(of_epoch).map(value).with_options(options)
    return divided_so(
        dealt, Whole(work="each rank takes whole batches from the data workers, each batch once in an epoch")
    )


def _in_order(given: Any, number: int) -> Any:
    """`given` as its iterator with this number reads it."""
    if number == 0:
        return given
    last = tf.data.Dataset.from_tensors(np.int64(number)).repeat()
    return tf.data.Dataset.choose_from_datasets([given] * (number + 1), last, stop_on_empty_dataset=True)
