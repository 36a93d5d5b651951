"""Two processes started by hand with TF_CONFIG, no launcher: the numbers of one worker, and ends that explain."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ports import HoldPorts
from programs import Program, run_python, start_python

pytestmark = [pytest.mark.processes]

SCRIPT = Path(__file__).with_name("started_by_hand.py")
RELATIVE = 1e-9


@pytest.fixture
def addresses(hold_ports: HoldPorts) -> list[str]:
    return [f"127.0.0.1:{port}" for port in hold_ports(2)]


def _tf_config(addresses: list[str], index: int) -> str:
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def _start_both(folder: Path, addresses: list[str], how: str) -> list[Program]:
    if how != "environment":
        cluster = json.dumps({"chief": addresses[:1], "worker": addresses[1:]})
        return [start_python(SCRIPT, folder, str(index), how, cluster, folder=folder) for index in range(2)]
    return [
        start_python(
            SCRIPT, folder, str(index), how, folder=folder, variables={"TF_CONFIG": _tf_config(addresses, index)}
        )
        for index in range(2)
    ]


@pytest.mark.proof
@pytest.mark.parametrize("how", ["environment", "own"])
def test_two_processes_compute_what_one_computes(
    tmp_path: Path, addresses: list[str], saved, one_worker, how: str
) -> None:
    programs = _start_both(tmp_path, addresses, how)
    for ended in [program.ended() for program in programs]:
        assert ended.code == 0, ended.output
    compare(tmp_path, how, saved, one_worker)


def compare(
    folder: Path, how: str, saved: Callable[..., dict[str, Any]], one_worker: Callable[[str], dict[str, Any]]
) -> None:
    """Both ranks have the numbers of one worker."""
    chief, other = (saved(folder, f"by_hand_{how}", index) for index in range(2))
    for drawn in ("numpy", "tensorflow"):
        np.testing.assert_array_equal(other[drawn], chief[drawn])
    for name in ("weights", "loss", "accuracy"):
        np.testing.assert_array_equal(other[name], chief[name])
        np.testing.assert_allclose(chief[name], one_worker("one_worker")[name], rtol=RELATIVE)


def test_after_exact_steps_a_rank_that_fails_ends_the_other_at_once_with_a_clear_line(
    tmp_path: Path, addresses: list[str], saved, one_worker
) -> None:
    waiting, failing = _start_both(tmp_path, addresses, "failing")
    failed = failing.ended()
    stopped = waiting.ended()
    assert failed.code == 1
    assert "RuntimeError: this rank gives up" in failed.output
    assert stopped.code != 0
    assert "goes on" in stopped.output
    last = stopped.output.strip().splitlines()[-1]
    assert "rank 1" in last, stopped.output
    assert "Traceback" not in stopped.output
    compare(tmp_path, "failing", saved, one_worker)


@pytest.mark.proof
def test_a_rank_that_never_comes_ends_the_start(tmp_path: Path, addresses: list[str]) -> None:
    variables = {"TF_CONFIG": _tf_config(addresses, 0), "PACELINE_START_TIMEOUT": "3"}
    ended = run_python(SCRIPT, tmp_path, "0", "environment", folder=tmp_path, variables=variables)
    assert ended.code == 69, ended.output
    assert "rank 1" in ended.output
    assert addresses[1] in ended.output
    assert "refused" in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.proof
def test_a_wrong_tf_config_is_told_at_once(tmp_path: Path) -> None:
    wrong = json.dumps(
        {"cluster": {"worker": ["127.0.0.1", "127.0.0.1:70000"]}, "task": {"type": "worker", "index": 5}}
    )
    ended = run_python(SCRIPT, tmp_path, "0", "environment", folder=tmp_path, variables={"TF_CONFIG": wrong})
    assert ended.code == 78, ended.output
    assert "Traceback" not in ended.output
    for received in ('"127.0.0.1"', "70000", "5"):
        assert received in ended.output, "all faults in one message"
