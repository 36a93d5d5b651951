"""``resumed_job.py STAGES [SCHEDULE] [JOB]``: a pipeline that may be killed and goes on; the chief prints its end."""

import hashlib
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
from pipelined_models import JOBS, Job
from shared_layer_cases import NEXT_WORDS, TIED, WORDS

import paceline

keras.config.set_floatx("float64")
keras.utils.set_random_seed(5)
name = sys.argv[3] if len(sys.argv) > 3 else "skips"
if name in TIED:
    build, optimizer = TIED[name]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    job = Job(build, WORDS, NEXT_WORDS, loss, ["accuracy"], optimizer)
else:
    job = JOBS[name]


class AwaitsSnapshot(keras.callbacks.Callback):
    """At one step of the first run, waits for a snapshot: whoever is killed later can resume."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        folder = os.environ.get("PACELINE_SNAPSHOT_DIR")
        if folder is None or int(self.model.optimizer.iterations) != 4:
            return
        give_up_at = time.monotonic() + 100
        while not [*Path(folder).glob("step-*/manifest.json")]:
            assert time.monotonic() < give_up_at
            time.sleep(0.01)


schedule = sys.argv[2] if len(sys.argv) > 2 else "1f1b"
steps_per_execution = 2 if schedule == "pipedream" else 1
strategy = paceline.PipelineStrategy(stages=int(sys.argv[1]), micro_batches=2, schedule=schedule)
with strategy.scope():
    model = job.build()
    model.compile(job.optimizer(), job.loss, metrics=job.metrics, steps_per_execution=steps_per_execution)
history = model.fit(
    job.x, job.y, batch_size=4, epochs=3, validation_data=(job.x, job.y), callbacks=[AwaitsSnapshot()], verbose=0
)
digest = hashlib.blake2b()
for array in model.predict(job.x, verbose=0):
    digest.update(np.ascontiguousarray(array).tobytes())
numbers = {name: [float(value) for value in values] for name, values in history.history.items()}
print("END", digest.hexdigest(), numbers, flush=True)
