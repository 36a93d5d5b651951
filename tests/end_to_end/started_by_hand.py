"""python started_by_hand.py DIRECTORY INDEX HOW: one of two processes that nobody launches, as the tutorials teach.

HOW: "environment" (TF_CONFIG is set), "own" (a chief and a worker; the script itself writes TF_CONFIG) or "failing"
(as own; index 1 then raises while index 0 trains on).
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from training import dataset, flat, model_and_compile, save, train

import paceline

directory, index, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]

made_early = tf.Variable([1.0, 2.0])
data_made_early = dataset()
list(data_made_early.take(1))

if how != "environment":
    task = {"type": "chief", "index": 0} if index == 0 else {"type": "worker", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": json.loads(sys.argv[4]), "task": task})

strategy = paceline.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
own = json.loads(os.environ["TF_CONFIG"])
assert (resolver.task_type, resolver.task_id) == (own["task"]["type"], own["task"]["index"])
assert resolver.cluster_spec().as_dict() == own["cluster"]
assert strategy.num_replicas_in_sync == 2
assert (paceline.rank(), paceline.world_size(), paceline.is_chief()) == (index, 2, index == 0)
assert made_early.numpy().tolist() == [1.0, 2.0]

drawn = {"numpy": np.random.rand(), "tensorflow": tf.random.uniform([]).numpy()}
save(directory, f"by_hand_{how}", index, drawn | train(strategy.scope()))

if how == "failing":
    with strategy.scope():
        model = model_and_compile()
    model.fit(dataset(), verbose=0)
    gone_on = Path(directory) / "gone_on"
    if index == 1:
        deadline = time.monotonic() + 120
        while not gone_on.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        raise RuntimeError("this rank gives up")
    print("goes on", flat(model).shape, flush=True)
    gone_on.touch()
    model.fit(dataset(), epochs=1000, verbose=0)
