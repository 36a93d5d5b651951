"""`paceline predict` as users type it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.verbs import app

LIMIT_SECONDS = 400

SCRIPT = """
import sys
import keras
import numpy as np

class Script(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        raise RuntimeError("a prediction calls none of the script's callbacks")

rows = np.random.default_rng(1).random((int(sys.argv[1]), 16), np.float32)
model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dropout(0.1), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(rows, rows[:, :1], batch_size=64, epochs=3, callbacks=[Script()], validation_split=0.25)
open("written", "w").close()
"""


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "paceline", "predict", *words]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)


@pytest.mark.processes
def test_a_prediction_for_hosts_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["--workers", "8,1,3", "--hosts", "2", "--link", "1Gbit,0.2ms", "--steps", "12", "--json"]
    words += ["--plot", "speed.svg"]
    finished = typed(tmp_path, "train.py", *words, "--", "900")
    assert finished.returncode == 0, finished.stderr
    assert "times as fast as 1 worker" in (tmp_path / "speed.svg").read_text()
    assert "paceline: measures 1 worker (job 1 of 3)" in finished.stderr
    told = json.loads(finished.stdout)
    assert told["network"] == {"round_trip_seconds": 2e-4, "bytes_per_second": 117.5e6}
    alone, three, eight = told["predictions"]
    assert [one["workers"] for one in told["predictions"]] == [1, 3, 8]
    assert [one["hosts"] for one in told["predictions"]] == [1, 2, 2]
    assert alone["speedup"]["value"] == 1
    assert (three["num_rows"], eight["num_rows"]) == (64, 64)
    for one in told["predictions"]:
        assert 0 < one["seconds"]["low"] <= one["seconds"]["value"] <= one["seconds"]["high"]
        assert sum(one["shares"].values()) == pytest.approx(1, abs=1e-6)
    assert alone["shares"]["messages"] == 0
    # Two crossings, with 1.1 kB of weights and the clocks of eight workers.
    assert eight["shares"]["messages"] * eight["seconds"]["value"] > 2 * 1e-4
    assert told["advice"][0].startswith("Fastest: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["speed.svg", "train.py"]


OTHER_DATA = """
import json
import os
import keras
import numpy as np
import tensorflow as tf

class Items(keras.utils.PyDataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        return np.ones((BATCH, 16), np.float32), np.ones((BATCH, 1), np.float32)

strategy = tf.distribute.MultiWorkerMirroredStrategy()
BATCH = 8 * strategy.num_replicas_in_sync
assert len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]) == strategy.num_replicas_in_sync
with strategy.scope():
    layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
model.fit(Items())
"""


@pytest.mark.proof
@pytest.mark.processes
def test_items_of_python_and_batches_that_grow_with_the_workers(tmp_path: Path) -> None:
    """The rings of a host have the workers that are there as readers, and nobody waits for the others."""
    (tmp_path / "train.py").write_text(OTHER_DATA)
    (tmp_path / "rows.py").write_text(
        OTHER_DATA.replace("fit(Items())", "fit(tf.data.Dataset.from_tensors(Items()[0]).repeat(), steps_per_epoch=7)")
    )
    items = typed(tmp_path, "train.py", "--workers", "4", "--hosts", "2", "--link", "1Gbit,1ms", "--steps", "12")
    assert items.returncode == 0, items.stderr
    assert "workers" in items.stdout.splitlines()[0]
    rows = typed(tmp_path, "rows.py", "--workers", "4", "--steps", "12", "--json")
    assert rows.returncode == 0, rows.stderr
    [four] = json.loads(rows.stdout)["predictions"]
    assert (four["workers"], four["num_rows"]) == (4, 32)


ENDS = """
import keras
import tensorflow as tf

once = iter([[[1.0]]] * 3)
spec = tf.TensorSpec([1, 1])
rows = tf.data.Dataset.from_generator(lambda: once, output_signature=spec).map(lambda row: (tf.tile(row, [4, 1]),) * 2)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(rows)
"""
"""Data that are there once, for fewer steps than are needed."""


@pytest.mark.proof
@pytest.mark.processes
def test_data_that_are_there_for_a_single_short_epoch(tmp_path: Path) -> None:
    """Of short epochs whole ones are counted, behind the first one: here there is no other."""
    (tmp_path / "train.py").write_text(
        ENDS.replace("* 3", "* 24").replace("fit(rows)", "fit(rows, steps_per_epoch=24)")
    )
    predicted = typed(tmp_path, "train.py", "--workers", "1", "--steps", "12", "--json")
    assert predicted.returncode == 0, predicted.stderr
    assert json.loads(predicted.stdout)["predictions"][0]["seconds"]["value"] > 0


@pytest.mark.proof
@pytest.mark.processes
def test_scripts_that_cannot_be_predicted(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("print('nothing')")
    (tmp_path / "broken.py").write_text("raise RuntimeError('the script is broken')")
    (tmp_path / "train.py").write_text(SCRIPT)
    nothing = typed(tmp_path, "nothing.py", "--workers", "1")
    assert nothing.returncode == 78
    assert "ended without a call of fit" in nothing.stderr
    assert nothing.stderr.rstrip().endswith("failed with exit code 78, as above. [predict]")
    broken = typed(tmp_path, "broken.py", "--workers", "2")
    assert broken.returncode == 1
    assert "the script is broken" in broken.stderr
    (tmp_path / "short.py").write_text(ENDS)
    short = typed(tmp_path, "short.py", "--workers", "2")
    assert short.returncode == 78, short.stderr
    assert "needs 20 or more" in short.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.py", "--workers", "2"], "there is no file"),
        ([__file__, "--workers", "0"], "expected numbers from 1 on"),
        ([__file__, "--workers", "auto"], "expected numbers from 1 on"),
        ([__file__, "--workers", "2", "--batch", "many"], "expected numbers from 1 on"),
        ([__file__, "--workers", "2", "--hosts", "2"], "--link 1Gbit,0.2ms"),
        ([__file__, "--workers", "2", "--hosts", "0", "--link", "1Gbit,1ms"], "expected a number above 0"),
        ([__file__, "--workers", "2", "--hosts", "2", "--link", "1GB"], "such as 1Gbit,0.2ms"),
        ([__file__, "--workers", "2", "--hosts", "a:x,b"], "hosts"),
        ([__file__], "--workers"),
        ([__file__, "--workers", "2", "--steps", "1"], "--steps"),
    ],
)
def test_wrong_words_are_refused(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["predict", *words])
    assert result.exit_code in (2, 78)
    assert message in result.output
