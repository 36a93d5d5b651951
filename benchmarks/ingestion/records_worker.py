"""One rank reads TFRecord files in one way; the chief writes how many rows of the job that is a second.

    records_worker.py FOLDER WAY        the files are made if they are not there

Only input is measured: batches are read and dropped.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

RANK, SIZE = int(os.environ.get("PACELINE_RANK", "0")), int(os.environ.get("PACELINE_WORLD_SIZE", "1"))
CORES = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORES[RANK % len(CORES)]})

import numpy as np  # noqa: E402  # after the cores are chosen: TensorFlow counts them
import tensorflow as tf  # noqa: E402

import paceline.data  # noqa: E402
from paceline.data.own_rows.local_batches import divided, local_batches  # noqa: E402
from paceline.data.own_rows.stages import Whole  # noqa: E402

ROWS, FILES, BATCH, BUFFER, EPOCHS = 24_000, 8, 64, 2000, 10
SHAPE = (28, 28, 3)
SPEC = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def parse(record: Any) -> Any:
    row = tf.io.parse_single_example(record, SPEC)
    image = tf.reshape(tf.io.decode_raw(row["image"], tf.uint8), SHAPE)
    return tf.cast(image, tf.float32) / 255.0, row["label"]


@paceline.data.element_wise
def parse_batch(records: Any) -> Any:
    rows = tf.io.parse_example(records, SPEC)
    images = tf.reshape(tf.io.decode_raw(rows["image"], tf.uint8), (-1, *SHAPE))
    return tf.cast(images, tf.float32) / 255.0, rows["label"]


def examples() -> Any:
    generator = np.random.default_rng(0)
    for label in range(ROWS):
        image = generator.integers(0, 255, SHAPE, dtype=np.uint8).tobytes()
        features = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        yield label, tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def make(folder: Path) -> None:
    """As TFRecord files and, for Grain, as ArrayRecord files."""
    from array_record.python.array_record_module import ArrayRecordWriter

    folder.mkdir()
    records = [tf.io.TFRecordWriter(str(folder / f"{number}.tfrecord")) for number in range(FILES)]
    arrays = [ArrayRecordWriter(str(folder / f"{number}.array_record"), "group_size:1") for number in range(FILES)]
    for label, example in examples():
        records[label * FILES // ROWS].write(example)
        arrays[label * FILES // ROWS].write(example)
    for writer in (*records, *arrays):
        writer.close()


def with_one_thread(dataset: Any) -> Any:
    """As `local_batches` sets it on one core: there is nothing to tune."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 1
    return dataset.with_options(options)


def own_batches(folder: Path, way: str) -> Any:
    """This rank's batches."""
    files = sorted(map(str, folder.glob("*.tfrecord")))
    naive = tf.data.TFRecordDataset(files).map(parse).shuffle(BUFFER, seed=1).batch(BATCH)
    if way == "naive":
        return local_batches(naive, RANK, SIZE, division=Whole())
    if way == "naive, divided":
        return local_batches(naive, RANK, SIZE, division=divided(naive))
    if way == "dealt by file":
        own = tf.data.Dataset.from_tensor_slices(files).shard(SIZE, RANK).shuffle(FILES, seed=1)
        read = own.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=4, deterministic=True)
        batches = read.shuffle(BUFFER // SIZE, seed=1).batch(BATCH // SIZE)
        return with_one_thread(batches.map(parse_batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2))
    if way == "grain":
        return grain_batches(folder)
    data = paceline.data.records(files, parse if way == "records, parse" else None, BATCH, shuffle=True)
    if way == "records":
        data = data.map(parse_batch, num_parallel_calls=tf.data.AUTOTUNE)
    return local_batches(data, RANK, SIZE, division=divided(data))


def grain_batches(folder: Path) -> Any:
    """Grain's own way: a slice of a shuffled `MapDataset` for each rank, parsed in NumPy, 16 threads read ahead."""
    import grain

    def parse_in_numpy(record: bytes) -> Any:
        features = tf.train.Example.FromString(record).features.feature
        image = np.frombuffer(features["image"].bytes_list.value[0], np.uint8).reshape(SHAPE)
        return image.astype(np.float32) / np.float32(255), features["label"].int64_list.value[0]

    source = grain.sources.ArrayRecordDataSource(sorted(map(str, folder.glob("*.array_record"))))
    rows = grain.MapDataset.source(source).shuffle(seed=1)[RANK::SIZE].map(parse_in_numpy)
    return rows.batch(BATCH // SIZE).to_iter_dataset()


def main(folder: str, way: str) -> None:
    if way == "make":
        make(Path(folder))
        return
    own = own_batches(Path(folder), way)
    for _ in own:
        pass
    begin, processor_begin, rows = time.perf_counter(), time.process_time(), 0
    for _ in range(EPOCHS):
        for _, labels in own:
            rows += len(labels)
    seconds, processor_seconds = time.perf_counter() - begin, time.process_time() - processor_begin
    assert abs(rows - EPOCHS * ROWS / SIZE) <= EPOCHS * BATCH, rows
    figures = {"rows_per_second": SIZE * rows / seconds, "rows_per_processor_second": SIZE * rows / processor_seconds}
    if RANK == 0:
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
