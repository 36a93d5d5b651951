"""One rank of a host prepares what all need, while the others wait."""

import json
from collections import Counter
from pathlib import Path

import pytest

from ports import HoldPorts
from programs import run_python, run_workers, start_python

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).with_name("does_once.py")
DONE = Counter(
    (
        *("prepared 0", "prepared 1", "prepared 2", "counted 3", "counted 2", "counted 1", "counted 0"),
        *("made table", "tried RuntimeError", "tried KeyError"),
    )
)


def test_four_ranks_race_and_one_does_it(tmp_path: Path) -> None:
    """`os.makedirs("data")`, an archive and a database of a user's own raced on all ranks."""
    ended = run_workers(4, SCRIPT, tmp_path / "trace", folder=tmp_path)
    assert ended.code == 0, ended.output
    assert Counter((tmp_path / "trace").read_text().splitlines()) == DONE
    own = [line for line in ended.output.splitlines() if "] own" in line]
    told = [line for line in ended.output.splitlines() if "] told " in line]
    assert len(own) == 2, ended.output
    assert len(told) == 3 + 3 + 3, ended.output
    assert all("failed on rank " in line and line.endswith(" [once-failed]") for line in told)
    [typed] = [line for line in ended.output.splitlines() if "typed:" in line]
    assert "a generator, which cannot be sent to the other workers" in typed
    assert typed.endswith(" [once-result]")


@pytest.mark.proof
def test_alone_nothing_is_changed(tmp_path: Path) -> None:
    ended = run_python(SCRIPT, tmp_path / "trace", folder=tmp_path)
    assert ended.code == 0, ended.output
    assert Counter((tmp_path / "trace").read_text().splitlines()) == DONE


BY_HAND = """
import os, paceline, sys
@paceline.once_per_host
def prepare():
    os.makedirs("data")
    return paceline.rank(), paceline.world_size()
by, size = prepare()
assert size == 2
assert os.path.isdir("data")
strategy = paceline.MultiWorkerMirroredStrategy()
assert strategy.num_replicas_in_sync == 2
with paceline.once() as first:
    if first:
        os.makedirs("data")
"""


@pytest.mark.proof
def test_by_hand_they_meet_first_and_hear_of_a_failure(tmp_path: Path, hold_ports: HoldPorts) -> None:
    (tmp_path / "script.py").write_text(BY_HAND)
    addresses = [f"127.0.0.1:{port}" for port in hold_ports(2)]
    programs = [
        start_python(
            "script.py",
            folder=tmp_path,
            variables={
                "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
            },
        )
        for index in range(2)
    ]
    ended = [program.ended() for program in programs]
    assert all(one.code != 0 for one in ended)
    failed = [one for one in ended if "line 14, in <module>" in one.output]  # the other one may name its exception, too
    assert failed, "\n".join(one.output for one in ended)
    assert "FileExistsError: [Errno 17] File exists: 'data'" in failed[0].output
    assert failed[0].output.splitlines()[-1].startswith("paceline: rank ")
