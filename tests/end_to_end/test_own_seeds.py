"""What a script seeds itself draws plain Python's numbers in any world; what it does not, the same on all ranks.

Cause: the job's seed was TensorFlow's global one, which moves operations with a seed of their own: a shuffle with
`seed=11` came in another order in each run, and a script that seeds `random` before it imports TensorFlow, whose
import draws a number, got other weights.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ports import HoldPorts
from programs import run_python, start_python

pytestmark = [pytest.mark.processes]

SCRIPT = Path(__file__).with_name("own_seeds.py")


def _drawn(folder: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The numbers of one worker that are the same in each run."""
    folder = tmp_path_factory.mktemp("plain")
    ended = run_python(SCRIPT, folder, folder=folder)
    assert ended.code == 0, ended.output
    numbers: dict[str, Any] = _drawn(folder)["0.1"]["seeded"]
    return numbers


def test_under_paceline_run_and_in_a_standby_after_a_restart(tmp_path: Path, plain: dict[str, Any]) -> None:
    """A standby has drawn what the import of Keras draws before the script seeds `random`: its weights were others."""
    options = ["--max-restarts", "1", "--standby", "--snapshot-dir", str(tmp_path / "snapshots")]
    command = ["-m", "paceline", "run", "--workers", "1", *options, SCRIPT, tmp_path, "dies"]
    ended = run_python(*command, folder=tmp_path)
    assert ended.code == 0, ended.output
    drawn = _drawn(tmp_path)
    assert {place: numbers["is standby"] for place, numbers in drawn.items()} == {"0.1": False, "0.2": True}
    for place, numbers in drawn.items():
        assert numbers["seeded"] == plain, place
        assert numbers["unseeded"] == drawn["0.1"]["unseeded"], place


@pytest.mark.proof
def test_started_by_hand(tmp_path: Path, hold_ports: HoldPorts, plain: dict[str, Any]) -> None:
    addresses = [f"127.0.0.1:{port}" for port in hold_ports(2)]
    programs = [
        start_python(
            SCRIPT,
            tmp_path,
            "by-hand",
            folder=tmp_path,
            variables={
                "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
            },
        )
        for index in range(2)
    ]
    for ended in [program.ended() for program in programs]:
        assert ended.code == 0, ended.output
    drawn = _drawn(tmp_path)
    assert [numbers["seeded"] for numbers in drawn.values()] == [plain, plain]
    assert drawn["0.1"]["unseeded"] == drawn["1.1"]["unseeded"]
