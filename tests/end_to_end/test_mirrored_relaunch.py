"""`MirroredStrategy` over several devices in a plain `python script.py`: the process becomes several."""

from pathlib import Path

import pytest

from programs import Ended, run_python

pytestmark = [pytest.mark.processes]

_SCRIPT = """
import os, sys
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
print("begins", flush=True)
import paceline
strategy = paceline.MirroredStrategy(devices=["CPU:0", "CPU:1"])
print(f"rank {paceline.rank()} of {strategy.num_replicas_in_sync} with {sys.argv[1:]}")
"""


_MODULE = """
import sys
import paceline
if paceline.world_size() == 1:
    paceline.MirroredStrategy(devices=["CPU:0", "CPU:1"])
print(f"rank {paceline.rank()} of {paceline.world_size()} with {sys.argv[1:]}")  # for which no worker needs TensorFlow
"""


def _assert_two_workers(ended: Ended, command: str) -> None:
    assert ended.code == 0, ended.output
    assert f"starting again as `paceline run --workers 2 {command}`" in ended.output
    for rank in range(2):
        assert ended.lines(f"[{rank}] rank {rank} of 2 with ['--epochs', '3 and more']"), ended.output


@pytest.mark.proof
def test_a_script_with_arguments(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SCRIPT)
    ended = run_python("train.py", "--epochs", "3 and more", folder=tmp_path)
    _assert_two_workers(ended, f"{tmp_path}/train.py --epochs '3 and more'")


def test_a_module_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "train.py").write_text(_MODULE)
    ended = run_python("-m", "package.train", "--epochs", "3 and more", folder=tmp_path)
    _assert_two_workers(ended, "-m package.train --epochs '3 and more'")


def test_a_command_that_is_no_script_is_told_of_launch(tmp_path: Path) -> None:
    ended = run_python("-c", _SCRIPT, folder=tmp_path)
    assert ended.code == 1
    assert "paceline.launch(function, workers=2)" in ended.output
    assert "starting again" not in ended.output
