"""A script that seeds nothing and shuffles three times: with NumPy's global generator, with one of its own, in tf.data.

paceline run --workers N unseeded_shuffles.py DIRECTORY   writes DIRECTORY/rank<r>.json: rows, epoch by epoch
"""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

rows = np.random.permutation(40)  # what scripts do
np.random.default_rng().shuffle(rows)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(rows).shuffle(40).batch(7))
epochs = [[int(row) for batch in data for row in batch] for _ in range(3)]
rank = strategy.cluster_resolver.task_id
(Path(sys.argv[1]) / f"rank{rank}.json").write_text(json.dumps(epochs))
