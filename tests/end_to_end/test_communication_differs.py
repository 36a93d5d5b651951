"""Hosts that differ, so that one rank chooses TensorFlow's collectives and the other MPI."""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = pytest.mark.processes

SCRIPT = """
import os, paceline
if paceline.rank() == 1:
    os.environ["PACELINE_COMMUNICATION"] = "ring"  # read when TensorFlow is imported, as the number of GPUs is
import keras
import numpy as np
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 2)), np.ones(8), batch_size=4, verbose=0)
"""


def test_ranks_that_would_communicate_in_different_ways_are_refused(tmp_path: Path) -> None:
    """Where only some hosts had to share GPUs, NCCL's ranks waited for those that were in MPI."""
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = run_workers(2, "script.py", folder=tmp_path)
    assert ended.code != 0
    said = next(line for line in ended.output.splitlines() if "the ranks exchange tensors in different ways" in line)
    assert "1 over mpi (such as rank 0), 1 over ring (such as rank 1)" in said
    assert "--communication mpi" in said
    assert said.endswith("[communication]")
