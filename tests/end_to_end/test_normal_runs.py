"""Normal runs end with 0 on every rank, every time: races at the end of a run show only in numbers.

One such run is in many a test, such as `test_best_snapshots.py`.
"""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = [pytest.mark.processes, pytest.mark.proof]

NUM_RUNS = 6

_SCRIPT = """
import keras
import numpy as np

keras.utils.set_random_seed(1)
x, y = np.random.rand(256, 8).astype("float32"), np.random.randint(0, 4, 256)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(4)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(x, y, epochs=2, verbose=0, validation_data=(x, y))
print("trained")
"""


def test_two_epochs_end_with_zero_every_time(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    for run in range(NUM_RUNS):
        ended = run_workers(2, script, folder=tmp_path)
        assert ended.code == 0, f"run {run}: {ended.output}"
        assert len([line for line in ended.output.splitlines() if line.endswith("trained")]) == 2, ended.output
