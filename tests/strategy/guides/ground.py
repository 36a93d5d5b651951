"""What the programs beside this one share: the strategy, the digits, and the numbers that they come to."""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

DIGITS = Path(__file__).parents[3] / "examples" / "data" / "mnist_10k.npz"
NUM_IMAGES = 110

folder = Path(sys.argv[1])
rank = int(os.environ.get("PACELINE_RANK", "0"))
size = int(os.environ.get("PACELINE_WORLD_SIZE", "1"))

keras.utils.set_random_seed(3)
keras.config.set_floatx("float64")


def _strategy() -> tf.distribute.Strategy:
    if "PACELINE_RANK" not in os.environ:
        return tf.distribute.get_strategy()
    name = sys.argv[2]
    made = tf.distribute.OneDeviceStrategy("/cpu:0") if name == "OneDeviceStrategy" else getattr(tf.distribute, name)()
    assert type(made).__module__.startswith("paceline."), type(made)
    return made


strategy = _strategy()
assert strategy.num_replicas_in_sync == size

with np.load(DIGITS) as archive:
    images = archive["x_train"][:NUM_IMAGES].astype("float64")[..., None] / 255.0
    labels = archive["y_train"][:NUM_IMAGES].astype("int64")

results: dict[str, np.ndarray] = {}
"""Numbers that all ranks must agree on, and that one worker computes, too."""
