"""One process reads a pipeline of large elements in bursts; writes how much memory it has held at most.

memory_worker.py stock|share HOST_BYTES        share: as `fit` reads it in one of two workers on such a host
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

MB = 1 << 20
ELEMENT_BYTES, BURSTS, IN_BURST = 28 * MB, 6, 60


def element(number: Any) -> Any:
    return tf.fill([ELEMENT_BYTES], tf.cast(number % 255, tf.uint8))


def pipeline() -> Any:
    options = tf.data.Options()
    options.autotune.enabled = True  # with few cores Paceline leaves it out, unless the script says so
    rows = tf.data.Dataset.range(1_000_000).map(element, num_parallel_calls=tf.data.AUTOTUNE)
    return rows.batch(1).prefetch(tf.data.AUTOTUNE).with_options(options)


def as_one_of_two_workers(dataset: Any, host_bytes: int) -> Any:
    """What `fit` makes of it: only the budget is looked at, so that there is one process."""
    from paceline.data.own_rows import local_batches

    local_batches.memory_share = lambda: host_bytes // 2
    return local_batches.local_batches(dataset, 0, 1)


def resident_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def main(way: str, host_bytes: int) -> None:
    """Reads, and writes."""
    dataset = pipeline() if way == "stock" else as_one_of_two_workers(pipeline(), host_bytes)
    iterator = iter(dataset)
    before = resident_mb("VmRSS")
    for _ in range(BURSTS):
        for _ in range(IN_BURST):
            next(iterator)
        time.sleep(2.0)  # the consumer does something else: buffers fill
    peak = resident_mb("VmHWM")
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps({"peak": peak, "buffers": peak - before}))
    os._exit(0)  # iterators with a tuner end late


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
