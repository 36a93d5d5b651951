"""Jobs under the launcher that die, once with no snapshot left: what they come to, and what the user is told."""

from pathlib import Path

import pytest

from programs import Ended, run_workers

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("killed")]

SCRIPT = """
import os, shutil, signal, sys, time
from pathlib import Path
import keras, numpy as np

GENERATION, SNAPSHOTS = os.environ["PACELINE_GENERATION"], Path(os.environ.get("PACELINE_SNAPSHOT_DIR", "none"))

class Dies(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations)
        if SNAPSHOTS.name == "none" or (GENERATION, step) not in (("1", 15), ("2", 25)):
            return
        give_up_at = time.monotonic() + 60
        while not [*SNAPSHOTS.glob("step-*/manifest.json")] and time.monotonic() < give_up_at:
            time.sleep(0.01)
        for snapshot in SNAPSHOTS.glob("step-*") if GENERATION == "1" else ():
            shutil.rmtree(snapshot)
        os.kill(os.getpid(), signal.SIGKILL)

keras.utils.set_random_seed(3)
dense, dropout = keras.layers.Dense, keras.layers.Dropout
model = keras.Sequential([keras.Input((4,)), dense(8, "relu"), dropout(0.2), dense(1)])
model.compile("adam", "mse")
rows = np.random.rand(80, 4).astype("float32")
backup = keras.callbacks.BackupAndRestore(f"{sys.argv[1]}-backup")
rows_file = keras.callbacks.CSVLogger(f"{sys.argv[1]}.csv", append=True)
history = model.fit(rows, rows.sum(1), batch_size=8, epochs=3, verbose=0, callbacks=[backup, rows_file, Dies()])
print("END", [repr(float(loss)) for loss in history.history["loss"]], model.get_weights()[0].tobytes().hex())
"""


def end_of(ended: Ended) -> str:
    assert ended.code == 0, ended.output
    [line] = [line.partition("END ")[2] for line in ended.output.splitlines() if "END " in line]
    return line


@pytest.mark.proof
def test_a_job_that_dies_without_a_snapshot_begins_anew_and_is_told_so(tmp_path: Path) -> None:
    """Keras's backup was restored in the place of a snapshot: other weights, fewer epochs, and no word of it."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    undisturbed = end_of(run_workers(1, "--seed", "7", script, "plain", folder=tmp_path))
    options = ("--seed", "7", "--max-restarts", "2", "--snapshot-dir", str(tmp_path / "run"))
    struck = run_workers(1, *options, script, "struck", folder=tmp_path, limit_seconds=400)
    assert end_of(struck) == undisturbed
    assert (tmp_path / "struck.csv").read_text() == (tmp_path / "plain.csv").read_text()
    assert "BackupAndRestore is inactive in this fit" in struck.output
    assert (
        "has no snapshot to resume from (none has been written yet): training starts from the beginning"
        in struck.output
    )
    assert "generation 2 starts from step 0, without a snapshot (" in struck.output
    assert "resuming from the snapshot of step 1: epoch 1, after 1 of its steps" in struck.output
    assert "generation 3 resumes from step 1 (" in struck.output
    assert " 0 steps done again" not in struck.output


OWN_STEP = """
import os, signal
from pathlib import Path
import keras, numpy as np, tensorflow as tf

class Dies(keras.callbacks.Callback):
    same_on_all_ranks = True

    def on_train_batch_end(self, batch, logs=None):
        if (os.environ["PACELINE_GENERATION"], os.environ["PACELINE_RANK"], batch) != ("1", "1", 8):
            return
        while "PACELINE_SNAPSHOT_DIR" in os.environ:
            if [*Path(os.environ["PACELINE_SNAPSHOT_DIR"]).glob("step-*/manifest.json")]:
                os.kill(os.getpid(), signal.SIGKILL)

class Shown(keras.Model):
    def __init__(self):
        super().__init__()
        self.network = keras.Sequential([keras.layers.Dense(6, "tanh"), keras.layers.Dense(4, "softmax")])
        self.only_shown = keras.layers.Dense(2, trainable=False)
        self.shown = keras.metrics.Mean(name="shown")

    def call(self, x):
        return self.network(x)

    def train_step(self, data):
        x, y = data
        logs = super().train_step((x, keras.ops.argmax(y, axis=-1)))
        self.shown.update_state(keras.ops.mean(self.only_shown(x) ** 2))
        return {**logs, "shown": self.shown.result()}

keras.utils.set_random_seed(3)
model = Shown()
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
x, y = np.random.rand(80, 3).astype("float32"), np.eye(4, dtype="float32")[np.arange(80) % 4]
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[Dies()]).history
if os.environ["PACELINE_RANK"] == "0":
    print("END", history, model.get_weights()[0].tobytes().hex())
"""


def test_a_step_that_builds_layers_and_metrics_goes_on_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """Building them for the snapshot had them read over ranks in the next trace: `numpy()` of a graph's tensor."""
    script = tmp_path / "train.py"
    script.write_text(OWN_STEP)
    undisturbed = end_of(run_workers(2, script, folder=tmp_path))
    options = ("--max-restarts", "1", "--snapshot-dir", str(tmp_path / "run"))
    struck = run_workers(2, *options, script, folder=tmp_path, limit_seconds=400)
    assert end_of(struck) == undisturbed
    assert "paceline: resuming from the snapshot of step " in struck.output
