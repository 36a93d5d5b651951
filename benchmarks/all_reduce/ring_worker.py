"""One rank of TensorFlow's own RING all-reduce, inside `tf.function`, through MultiWorkerMirroredStrategy."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

SIZES = json.loads(sys.argv[1])
options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.RING
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
result: dict[str, float] = {}
for size in SIZES:
    value = tf.zeros(size // 4)

    def step(value: tf.Tensor = value) -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)[0]

    function = tf.function(lambda step=step: strategy.run(step))
    times = []
    for _ in range(40 if size <= 1 << 24 else 8):
        begin = time.perf_counter()
        function().numpy()
        times.append(time.perf_counter() - begin)
    result[str(size)] = float(np.median(times[2:]) * 1e3)
if strategy.cluster_resolver.task_id == 0:
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
