"""python started_by_others.py DIRECTORY HOW: a rank that an MPI launcher or a scheduler has started, without TF_CONFIG.

HOW: "well", or "failing" (as well; rank 1 then raises in the second epoch of many).
"""

import os
import sys

import keras
import numpy as np
import tensorflow as tf
from training import dataset, model_and_compile, save, train

import paceline

directory, how = sys.argv[1:]
assert "TF_CONFIG" not in os.environ

strategy = paceline.MultiWorkerMirroredStrategy()
index = paceline.rank()
resolver = strategy.cluster_resolver
assert (resolver.task_type, resolver.task_id) == ("worker", index)
assert paceline.world_size() == strategy.num_replicas_in_sync == len(resolver.cluster_spec().as_dict()["worker"])
assert paceline.local_rank() == index
assert paceline.is_chief() == (index == 0)

drawn = {"numpy": np.random.rand(), "tensorflow": tf.random.uniform([]).numpy()}
save(directory, f"by_others_{how}", index, drawn | train(strategy.scope()))

if how == "failing":
    with strategy.scope():
        model = model_and_compile()

    def give_up(epoch: int, logs: object) -> None:
        if epoch == 1 and index == 1:
            raise RuntimeError("this rank gives up")

    print(f"rank {index} goes on", flush=True)
    model.fit(dataset(), epochs=1000, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=give_up)])
