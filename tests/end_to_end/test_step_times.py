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
        pytest.param(1, "map", "input", id="map of one worker, validated"),
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
