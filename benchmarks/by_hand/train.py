"""A script as users write it: prints when its first collective is done."""

import json
import time

import tensorflow as tf

import paceline

strategy = paceline.MultiWorkerMirroredStrategy()
total = strategy.reduce("SUM", tf.constant(1.0), axis=None)
print(json.dumps({"done": time.monotonic()}), flush=True)
