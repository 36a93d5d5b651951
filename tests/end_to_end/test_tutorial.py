"""TensorFlow's tutorial "Multi-worker training with Keras" runs as it is printed there."""

from pathlib import Path

import numpy as np
import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes]

TUTORIAL = Path(__file__).parent / "tutorial"


@pytest.mark.parametrize("num_workers", [2, pytest.param(3, marks=pytest.mark.proof)])
def test_training_on_real_digits(worlds: Worlds, tmp_path: Path, saved, num_workers: int) -> None:
    ended = worlds.of(num_workers).run_script(TUTORIAL / "main.py", tmp_path, "2", folder=tmp_path)
    ranks = [saved(tmp_path, "tutorial", rank) for rank in range(num_workers)]
    assert ranks[0]["num_replicas"] == num_workers
    # Seeds differ from job to job, and a learning rate that small learns little: but each epoch is better than the last
    assert ranks[0]["history_loss"][1] < ranks[0]["history_loss"][0]
    for other in ranks[1:]:
        for name, values in ranks[0].items():
            np.testing.assert_array_equal(other[name], values, err_msg=name)
    bars = [line for line in ended.output.splitlines() if "70/70" in line]
    assert bars, ended.output
    assert all(line.startswith("[0] ") for line in bars), "one progress bar, the chief's"


@pytest.mark.proof
def test_the_cells_on_saving(worlds: Worlds, tmp_path: Path) -> None:
    ended = worlds.of(2).run_script(TUTORIAL / "saving.py", tmp_path, folder=tmp_path)
    for rank in range(2):
        assert f"[{rank}] all cells ran" in ended.output.splitlines()
