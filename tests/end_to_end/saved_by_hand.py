"""python saved_by_hand.py DIRECTORY INDEX HOW: one of two processes that nobody launches, and that save to one path.

HOW: "ended" (both come to their end) or "killed" (index 1 is, after both have saved).
"""

import os
import signal
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
from training import dataset, flat, model_and_compile

import paceline

directory, index, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
strategy = paceline.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = model_and_compile()
for epoch in range(3):
    model.fit(dataset(), verbose=0)
    model.save(directory / "model.keras")
    loaded = keras.models.load_model(directory / "model.keras")
    assert np.array_equal(flat(loaded), flat(model)), epoch
private = Path(tempfile.gettempdir(), f"paceline-{strategy.world.identity.job_id}")
assert private.is_dir()
(directory / f"private.{index}").write_text(str(private))
model.fit(dataset(), verbose=0)
if how == "killed":
    if index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    model.fit(dataset(), epochs=1000, verbose=0)
