"""One rank of the old stack: tf_keras (Keras 2) under TensorFlow's own strategy, whose AutoShardPolicy.DATA leaves
reading and maps on all rows on every worker. Writes as `worker.py` does.
"""

import json
import os
import sys
import time
from pathlib import Path

import tensorflow as tf
import tf_keras
from input_kinds import ROWS, data_of, model_of

kind = sys.argv[1]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
data = data_of(kind, tf_keras)
settings = tf.data.Options()
settings.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
settings.threading.private_threadpool_size = 1
if kind != "arrays":
    data["x"] = data["x"].with_options(settings)
with strategy.scope():
    model = model_of(kind, tf_keras)
model.fit(**data, epochs=1, verbose=0)
begin, processor_begin = time.perf_counter(), time.process_time()
model.fit(**data, epochs=1, verbose=0)
seconds, processor_seconds = time.perf_counter() - begin, time.process_time() - processor_begin
if strategy.cluster_resolver.task_id == 0:
    rows = ROWS[kind]
    result = {"rows_per_second": rows / seconds, "rows_per_processor_second": rows / processor_seconds}
    Path(os.environ["BENCH_RESULT"]).write_text(json.dumps(result))
