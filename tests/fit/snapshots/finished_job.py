"""One `fit`, of as many epochs as the argument says."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(np.ones((4, 1)), np.ones((4, 1)), epochs=int(sys.argv[1]), verbose=0)
print(f"epochs {history.epoch}", flush=True)
