"""A `fit` over a `PyDataset` whose items hold the interpreter, or items of 12 MB through a ring; the chief writes.

items_worker.py fit shared|whole WORKERS      whole: every rank makes all items, as before they were shared
items_worker.py ring
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

RANK = int(os.environ.get("PACELINE_RANK", "0"))
CORES = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {CORES[RANK % len(CORES)]})

import keras  # noqa: E402  # after the cores are chosen: TensorFlow counts them
import numpy as np  # noqa: E402

ITEMS, BATCH, FEATURES = 60, 64, 64
RING_ITEMS, RING_SHAPE = 60, (3_000, 1_000)
TURNS_OF_ITEM = 1_000_000


class Items(keras.utils.PyDataset):
    """Each item takes about 40 ms of Python, which no other thread of the process can use."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        total = 0
        for turn in range(TURNS_OF_ITEM):
            total += turn ^ index
        x = np.full((BATCH, FEATURES), total % 7, "float32")
        return x, x[:, 0]


class Clock(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.begins: list[tuple[float, float]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begins.append((time.perf_counter(), time.process_time()))

    def on_train_end(self, logs: Any = None) -> None:
        self.on_epoch_begin(-1)


def fit(way: str, workers: str) -> dict[str, float]:
    """Rows a second, without the first epoch."""
    if way == "whole":
        from paceline.fit.sources.py_datasets import PyDatasetItems

        PyDatasetItems._makers_of = lambda *_: None
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), loss="mse")
    clock = Clock()
    model.fit(Items(workers=int(workers)), epochs=3, verbose=0, callbacks=[clock])
    _, begin, _, end = clock.begins
    rows, (seconds, processor_seconds) = 2 * ITEMS * BATCH, (b - a for a, b in zip(begin, end, strict=True))
    return {"rows_per_second": rows / seconds, "rows_per_processor_second": rows / processor_seconds}


def ring() -> dict[str, float]:
    """From the moment at which an item is there until each rank has its half: milliseconds, and its three parts."""
    from paceline.comm.group import Reduction
    from paceline.comm.memory_ring import form_rings, ranks_of_this_host
    from paceline.comm.world import current_world

    group = current_world().group
    rings = form_rings(group, ranks_of_this_host(group), 1)
    assert rings is not None
    item, found = np.ones(RING_SHAPE, "float32"), []
    for _ in range(RING_ITEMS):
        group.barrier()
        begin = time.monotonic()
        if rings.writer is not None:
            rings.writer.write(0, b"", [item], lambda: False)
        [reader] = rings.readers
        record = reader.next(lambda: False)
        assert record is not None
        rows = np.frombuffer(record.buffers[0], item.dtype).reshape(RING_SHAPE)
        half = len(rows) // group.size
        own = rows[RANK * half : (RANK + 1) * half].copy()
        del record, rows
        reader.done()
        [last] = group.all_reduce([np.array(time.monotonic() - begin)], Reduction.MAX)
        assert own.all()
        found.append(float(last) * 1e3)
    return {"milliseconds": float(np.median(found[10:])), "least": float(min(found[10:]))}


if __name__ == "__main__":
    result = ring() if sys.argv[1] == "ring" else fit(*sys.argv[2:])
    if RANK == 0:
        Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
