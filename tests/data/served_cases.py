"""What ranks read of data workers, for `test_served_batches.py`."""

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.data.indexed import readings
from paceline.data.workers.dealt_batches import dealt_batches
from paceline.data.workers.served_batches import ServedBatches

_LIMIT_SECONDS = 150.0
_service: list[Any] = []
_readings = iter(range(1000, 100_000))


def target() -> str:
    """Of a dispatcher with two data workers, of which coordinated jobs use the first."""
    if not _service:
        service = tf.data.experimental.service
        _service.append(service.DispatchServer())
        add_worker()
    return _service[0].target


def add_worker() -> None:
    """In a process that ends with this one: its runtime has threads of its own."""
    address = _service[0].target.partition("://")[2]
    _service.append(subprocess.Popen([sys.executable, "-c", _WORKER, address], stdin=subprocess.PIPE))


_WORKER = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
config = tf.data.experimental.service.WorkerConfig(dispatcher_address=sys.argv[1], heartbeat_interval_ms=1000)
server = tf.data.experimental.service.WorkerServer(config)
sys.stdin.read()
os._exit(0)
"""


def numbers(rows: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(rows).shuffle(8).batch(4)


def ragged(row: Any) -> Any:
    return tf.RaggedTensor.from_row_lengths(tf.range(tf.reduce_sum(row % 3)), row % 3)


PIPELINES: dict[str, Callable[[], tf.data.Dataset]] = {
    "known": lambda: numbers(10),
    "unknown": lambda: numbers(10).filter(lambda row: True),
    "two shuffles": lambda: tf.data.Dataset.range(10).shuffle(3).map(lambda row: row * 2).shuffle(7).batch(4),
    "fewer rows than ranks": lambda: numbers(1),
    "no rows": lambda: numbers(0),
    "full batches": lambda: tf.data.Dataset.range(10).shuffle(8).batch(4, drop_remainder=True),
    "cached": lambda: tf.data.Dataset.range(10).cache().shuffle(8).batch(4),
    "dict, text, scalar": lambda: numbers(10).map(lambda row: ({"b": row, "a": tf.strings.as_string(row)}, 3.0)),
    "ragged": lambda: numbers(10).map(lambda row: (ragged(row), row)),
    "sparse": lambda: numbers(10).map(lambda row: tf.sparse.from_dense(tf.stack([row, row * 0, row], axis=1))),
    "unknown shapes": lambda: numbers(10).map(lambda row: tf.zeros([tf.size(row), tf.cast(row[0], tf.int32)])),
    "repeated": lambda: numbers(6).repeat(2),
}


def shown(element: Any) -> list[Any]:
    """An element as lists, rows first; a scalar as it is."""
    leaves = []
    for leaf in tf.nest.flatten(element):
        if isinstance(leaf, tf.SparseTensor):
            leaf = tf.sparse.to_dense(leaf)
        value = leaf.to_list() if isinstance(leaf, tf.RaggedTensor) else np.asarray(leaf).tolist()
        leaves.append([str(row) for row in value] if isinstance(value, list) else value)
    return leaves


def joined(parts: list[list[Any]]) -> list[Any]:
    """The leaves of a batch, of the ranks' parts of it."""
    return [
        leaves[0] if not isinstance(leaves[0], list) else [row for leaf in leaves for row in leaf]
        for leaves in zip(*parts, strict=True)
    ]


def read_as_keras(
    source: ServedBatches, rank: int, size: int, epochs: int, told: dict[int, Any], first: int, given: int
) -> None:
    """Epochs as Keras reads them: where the length is known, it makes another iterator at the end of each."""
    reading = readings.MadeIterators(given + rank)
    own = source.batches(reading, rank, size).prefetch(2)
    num_batches = source.known_batches
    told[rank] = []
    for epoch in range(epochs):
        reading.new_iterator()
        begin = first if epoch == 0 else 0
        if begin:
            reading.begin_at(begin)
        iterator, batches = iter(own), []
        while num_batches is None or begin + len(batches) < num_batches:
            reading.ask_for(begin + len(batches) + 1)
            try:
                batches.append(shown(next(iterator)))
            except StopIteration:
                break
        told[rank].append(batches)
        if num_batches is not None:
            reading.new_iterator()


def expected(dataset: tf.data.Dataset, epochs: int) -> list[Any]:
    """The epochs of one process, with the iterators that Keras makes."""
    told, is_known = [], int(dataset.cardinality()) >= 0
    for _ in range(epochs):
        told.append([shown(batch) for batch in dataset])
        if is_known:
            iter(dataset)
    return told


def run_case(name: str, pipeline: str) -> Any:
    if name == "dealt":
        return dealt(pipeline)
    return {str(size): coordinated(pipeline, size) for size in (1, 2, 3)}


def coordinated(pipeline: str, size: int) -> list[Any]:
    """Expected epochs, those that ranks have read, and those of ranks that go on in the middle of the second one."""
    tf.random.set_seed(7)
    wanted = expected(PIPELINES[pipeline](), 3)
    tf.random.set_seed(7)
    given = PIPELINES[pipeline]()
    return [wanted, _read(given, size, 3, 0, 0), _read(given, size, 2, 1, 1)]


def _read(given: tf.data.Dataset, size: int, epochs: int, epoch: int, first: int) -> list[Any]:
    number = next(_readings) * 10
    source = ServedBatches(number=number, given=given, target=target(), compression=None)
    stride = 1 if source.known_batches is None else 2
    readings.set_next_epochs([[number + rank, epoch * stride] for rank in range(size)])
    told: dict[int, Any] = {}
    threads = [
        threading.Thread(target=read_as_keras, args=(source, rank, size, epochs, told, first, number), daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    by_epoch = zip(*(told[rank] for rank in range(size)), strict=True)
    return [[joined(list(parts)) for parts in zip(*ranks, strict=True)] for ranks in by_epoch]


def dealt(pipeline: str) -> list[Any]:
    """The batches of three epochs that two readers get."""
    where = target()
    if len(_service) == 2:
        add_worker()
    tf.random.set_seed(7)
    number = next(_readings) * 10
    readers = [dealt_batches(PIPELINES[pipeline](), number, where, None) for _ in range(2)]
    epochs = []
    for epoch in range(3):
        told = []
        for reader in readers:
            readings.set_next_epochs([[number, epoch]])
            told.append([shown(batch) for batch in reader])
        epochs.append(told)
    return epochs
