"""`paceline data profile` as users type it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.verbs import app

LIMIT_SECONDS = 240

SCRIPT = """
import sys
import time
import keras
import tensorflow as tf

def decode(number):
    return tf.reduce_sum(tf.random.stateless_uniform([200_000], [number, 1]))[tf.newaxis], [0.0]

def wait(value):
    time.sleep(0.1)  # what a step of this model costs: behind the cache, training waits for the model
    return value

class Slow(keras.layers.Layer):
    def call(self, value):
        return tf.ensure_shape(tf.numpy_function(wait, [value], tf.float32, stateful=True), value.shape)

class Script(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        raise SystemExit("a profile calls none of the script's callbacks")

print("the script runs", sys.argv[1:])
rows = tf.data.Dataset.range(100).map(decode).shuffle(2)
model = keras.Sequential([Slow(trainable=False), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(rows.batch(10), epochs=3, callbacks=[Script()])
raise SystemExit("a profile ends the script")
"""


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "paceline", "data", "profile", *words]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)


@pytest.mark.processes
def test_a_profile_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    finished = typed(tmp_path, "--seconds", "0.6", "--json", "--plot", "data.svg", "train.py", "--rows", "3")
    assert finished.returncode == 0, finished.stderr
    assert "the script runs ['--rows', '3']" in finished.stderr
    # Three rounds of 0.6 s with the change, and without, take more than two seconds.
    assert re.search(
        r"paceline: measuring .*, in fit \.\.\. \d+ s|paceline: measuring \.cache.* \d+ s", finished.stderr
    )
    told = json.loads(finished.stdout)
    assert [stage["name"] for stage in told["stages"]] == ["range", "map decode", "shuffle", "batch"]
    # Only with the seam in place: shuffles then share their seeds, and rows are mapped behind.
    assert [stage["on_own_rows"] for stage in told["stages"]] == [False, True, False, False]
    assert told["stages"][1]["share"] > 0.5
    cached = next(one for one in told["advice"] if one["change"].startswith(".cache()"))
    assert cached["gain"] > 2
    assert cached["gain_in_fit"] < cached["gain"] / 2  # training waits for the model
    assert ">map decode<" in (tmp_path / "data.svg").read_text()


ITEMS = """
import time
import keras
import numpy as np

class Slow(keras.utils.PyDataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        time.sleep(0.03)
        return np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)

def batches():
    for index in range(100_000):
        yield Slow()[index]

model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Slow(), epochs=3)
raise SystemExit("a profile ends the script")
"""


@pytest.mark.proof
@pytest.mark.processes
def test_a_profile_of_python_s_items(tmp_path: Path) -> None:
    """They were refused."""
    (tmp_path / "items.py").write_text(ITEMS)
    (tmp_path / "generator.py").write_text(ITEMS.replace("fit(Slow(), ", "fit(batches(), steps_per_epoch=9, "))
    items, generator = (typed(tmp_path, "--seconds", "0.3", "--json", f"{name}.py") for name in ("items", "generator"))
    assert (items.returncode, generator.returncode) == (0, 0), items.stderr + generator.stderr
    for told, name in (
        (json.loads(items.stdout), "PyDataset Slow"),
        (json.loads(generator.stdout), "generator batches"),
    ):
        [stage] = told["stages"]
        assert stage["name"] == name
        assert stage["waits"] > 0.5
        assert told["items"]["seconds"] >= 0.03
        assert told["items"]["share_of_step"] > 0.02  # of a model that does nothing to speak of, on a busy machine
    most, _ = json.loads(items.stdout)["advice"]
    assert most["change"] == "workers=8 in the PyDataset"
    assert most["gain_in_fit"] > 1.2


@pytest.mark.processes
def test_what_cannot_be_profiled_is_said(tmp_path: Path) -> None:
    (tmp_path / "arrays.py").write_text(SCRIPT.replace("rows.batch(10)", "tf.zeros([4, 1])"))
    (tmp_path / "nothing.py").write_text("print('nothing')")
    arrays, nothing = typed(tmp_path, "arrays.py"), typed(tmp_path, "nothing.py")
    assert arrays.returncode == 78
    assert "expected a tf.data.Dataset of batches" in arrays.stderr
    assert nothing.returncode == 1
    assert "has ended without a call of fit" in nothing.stderr


@pytest.mark.parametrize(
    "words", [["none.py"], ["--plot", "a.pdf", __file__], ["--seconds", "0", __file__], ["--seconds", "nan", __file__]]
)
def test_wrong_words_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(app, ["data", "profile", *words]).exit_code == 2
