"""A job under the launcher that dies twice, once with no snapshot left: what it comes to, and what the user is told."""

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
