"""The chief says where the time of steps goes, and whom the others wait for: naps in known places are found there."""

import json
import re
from pathlib import Path

import pytest

from programs import run_workers

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parent / "step_times.py"
FOUND = 0.7
"""How much of the naps must be found. On a busy machine there is other waiting, too, at ends of epochs for example."""


def only_of(naps: str) -> list[int]:
    """The rank that naps alone, if one does."""
    return [int(word) for word in naps.split()[1:]]


@pytest.mark.parametrize(
    ("workers", "naps", "word"),
    [
        pytest.param(1, "map", "input", id="map of one worker, validated", marks=pytest.mark.proof),
        pytest.param(2, "map", "input", id="map", marks=pytest.mark.proof),
        pytest.param(2, "map 1", "input", id="map of one rank", marks=pytest.mark.proof),
        pytest.param(2, "callback", "callbacks", id="callback", marks=pytest.mark.proof),
        pytest.param(2, "callback 0", "waiting for rank 0", id="callback of the chief", marks=pytest.mark.proof),
        pytest.param(2, "watched 1", "waiting for rank 1", id="callback of one rank"),
    ],
)
def test_naps_are_found_where_they_are(tmp_path: Path, workers: int, naps: str, word: str) -> None:
    ended = run_workers(workers, "--events", "events.jsonl", SCRIPT, *naps.split(), folder=tmp_path)
    assert ended.code == 0, ended.output
    [last] = [line for line in ended.lines("[0] paceline: fit ") if "; step " in line]
    shares = {
        name: int(share) for name, share in re.findall(r"(?:: |, )([a-z][a-z 0-9]*?) (\d+) %", last.split("; step")[1])
    }
    [measured] = ended.lines("[0] measured: ")
    expected = int(re.findall(r"naps (\d+) %", measured)[0])
    assert shares[word] > FOUND * expected, ended.output
    assert sum(shares.values()) in range(95, 106), last
    named = [line for line in ended.output.splitlines() if "[straggler]" in line]
    if only_of(naps):
        place, rank = naps.split()
        does = "waits for its data" if place == "map" else "is in callbacks"
        assert [line for line in named if f"rank {rank} {does}" in line], ended.output
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    told = [event["text"] for event in events if event["event"] in ("StepsTimed", "StragglerFound")]
    lines = [line.partition("paceline: ")[2] for line in ended.lines("[0] paceline: ")]
    shown = [line for line in lines if line.startswith(("step ", "fit ")) or "[straggler]" in line]
    assert [text for text in told if text in shown] == shown
    slow = [event["straggler"] for event in events if event["event"] == "StragglerFound"]
    assert set(only_of(naps)) <= set(slow)


@pytest.mark.proof
def test_a_short_fit_says_nothing_of_it(tmp_path: Path) -> None:
    script = tmp_path / "short.py"
    script.write_text(
        "import keras, numpy as np\n"
        "model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "model.fit(np.ones((8, 2)), np.ones((8, 1)), verbose=0)\n"
    )
    ended = run_workers(1, script, folder=tmp_path)
    assert ended.code == 0, ended.output
    assert "paceline: step " not in ended.output
    assert "paceline: fit " not in ended.output


PIPELINE = """
import keras, numpy as np, paceline
strategy = paceline.PipelineStrategy(2, micro_batches=4, balance=[1, 5])
x = np.random.default_rng(0).normal(size=(512, 128)).astype("float32")
with strategy.scope():
    layers = [keras.layers.Dense(512, "relu") for _ in range(5)]
    model = keras.Sequential([keras.Input((128,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(x, x[:, :1], batch_size=64, epochs=20, verbose=2)
"""
"""The first of two stages has next to nothing to do."""


@pytest.mark.proof
def test_stages_that_wait_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    ended = run_workers(2, "--events", "events.jsonl", "pipeline.py", folder=tmp_path)
    assert ended.code == 0, ended.output
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    [whole] = [event for event in events if event["event"] == "StepsTimed" and event["is_whole_fit"]]
    waits = [int(share) for share in re.findall(r"(\d+) %", whole["text"].partition("; stages wait ")[2])]
    assert len(waits) == 2, ended.output
    assert waits[0] > waits[1] + 20, ended.output
    assert sum(whole["shares"].values()) == pytest.approx(1, abs=0.05)
    assert not [event for event in events if event["event"] == "StragglerFound"], ended.output


SERVERS = """
import time
import keras, numpy as np, paceline, tensorflow as tf
strategy = paceline.ParameterServerStrategy()
def napping():
    for row in np.random.default_rng(0).normal(size=(128, 8)).astype("float32"):
        time.sleep(0.005)
        yield row, row[:1]
shapes = tf.TensorSpec((8,), tf.float32), tf.TensorSpec((1,), tf.float32)
data = tf.data.Dataset.from_generator(napping, output_signature=shapes).batch(8)
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(data, epochs=3, steps_per_epoch=16, verbose=2)
"""


@pytest.mark.proof
def test_the_chief_of_servers_tells_input_from_waiting_for_workers(tmp_path: Path) -> None:
    (tmp_path / "servers.py").write_text(SERVERS)
    ended = run_workers(1, "--ps", "1", "--events", "events.jsonl", "servers.py", folder=tmp_path)
    assert ended.code == 0, ended.output
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    [whole] = [event for event in events if event["event"] == "StepsTimed" and event["is_whole_fit"]]
    assert whole["shares"]["input"] > 0.6, ended.output  # 40 ms of naps a batch, and next to nothing else
    assert whole["shares"].get("input and compute", 0) < 0.05, ended.output
    assert sum(whole["shares"].values()) == pytest.approx(1, abs=0.05)
