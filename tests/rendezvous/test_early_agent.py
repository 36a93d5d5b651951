"""The agent that starts before its worker has asked to join."""

import json
import signal
from pathlib import Path

import pytest

from process_table import running, until_gone
from programs import run_python, start_python

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).with_name("early_agent.py")
TWO = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
RANK = json.dumps({"cluster": TWO, "task": {"type": "worker", "index": 1}})


@pytest.mark.parametrize(
    ("how", "tf_config", "starts"),
    [
        ("once", RANK, True),
        ("once", json.dumps({"cluster": TWO, "task": {"type": "evaluator", "index": 0}}), False),
        ("once", json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}), False),
        ("once", "no JSON", False),
        ("spawns", RANK, False),
    ],
)
def test_only_one_of_several_ranks_has_an_early_agent(tmp_path: Path, how: str, tf_config: str, starts: bool) -> None:
    ended = run_python(PROGRAM, how, folder=tmp_path, variables={"TF_CONFIG": tf_config})
    [children] = ended.lines("children")
    # Where `multiprocessing` spawns, its resource tracker is a child of the parent, not of the child that looks here.
    assert (len(children.split()) > 1) is starts, ended.output


def test_it_ends_with_its_worker_although_a_forked_child_holds_the_line(tmp_path: Path) -> None:
    program = start_python(PROGRAM, "forks", folder=tmp_path, variables={"TF_CONFIG": RANK})
    try:
        ended = program.ended()
        assert ended.code == -signal.SIGKILL, ended.output
        [[_, agent]] = [line.split() for line in ended.lines("children")]
        [[_, forked]] = [line.split() for line in ended.lines("forked")]
        assert until_gone(lambda: running([int(agent)])) == []
        assert running([int(forked)]), "it held the line all the time"
    finally:
        program.kill()
