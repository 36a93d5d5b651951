"""Data that TensorFlow keeps in files, on several ranks and after a restart. The cases are in `cached_jobs.py`."""

from pathlib import Path

import numpy as np
import pytest

from programs import run_python
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "cached_jobs.py"


def _alone(worlds: Worlds, folder: Path) -> list[float]:
    folder.mkdir()
    [[history, _]] = worlds.not_launched.run(SCRIPT, "cache", folder).told
    return history["loss"]


def test_each_rank_has_a_cache_of_its_own_and_finds_it_again(worlds: Worlds, tmp_path: Path) -> None:
    """TensorFlow lets one process write a cache, and all ranks gave it the same name: AlreadyExistsError."""
    losses = _alone(worlds, tmp_path / "alone")
    told = worlds.of(2).run(SCRIPT, "cache", tmp_path).told
    for history, _ in told:
        np.testing.assert_allclose(history["loss"], losses, rtol=1e-9)
    files = {one.name for one in tmp_path.glob("rows*")}
    assert {f"rows.rank-{rank}-of-2.index" for rank in (0, 1)} <= files
    assert "rows.index" not in files
    for history in worlds.of(2).run(SCRIPT, "cache that is there", tmp_path).told:
        np.testing.assert_allclose(history["loss"], losses, rtol=1e-9)


@pytest.mark.proof
@pytest.mark.parametrize("case", ["cache named in a function", "snapshot"])
def test_other_files_of_tensorflow(worlds: Worlds, tmp_path: Path, case: str) -> None:
    (tmp_path / "alone").mkdir()
    [alone] = worlds.not_launched.run(SCRIPT, case, tmp_path / "alone").told
    for history in worlds.of(2).run(SCRIPT, case, tmp_path).told:
        np.testing.assert_allclose(history["loss"], alone["loss"], rtol=1e-9)


def test_one_rank_saves_a_dataset_and_all_load_it(worlds: Worlds, tmp_path: Path) -> None:
    """Each rank of a host wrote all rows, and the description that others were about to read."""
    losses = _alone(worlds, tmp_path / "alone")
    for history, num_runs in worlds.of(2).run(SCRIPT, "saved", tmp_path).told:
        np.testing.assert_allclose(history["loss"], losses, rtol=1e-9)
        assert num_runs == 1


def test_a_job_that_was_killed_while_a_cache_was_written_resumes(worlds: Worlds, tmp_path: Path) -> None:
    """A snapshot had TensorFlow close a part of the cache, and the killed writer left its parts: the next generation,
    or the second epoch, failed with AlreadyExistsError."""
    losses = _alone(worlds, tmp_path / "alone")
    options = ["--max-restarts", "1", "--snapshot-dir", str(tmp_path / "snapshots"), "--snapshot-every", "2"]
    ended = run_python("-m", "paceline", "run", "--workers", "1", *options, SCRIPT, tmp_path, folder=tmp_path)
    assert ended.code == 0, ended.output
    np.testing.assert_allclose(np.load(tmp_path / "losses.npy"), losses, rtol=1e-9)
    assert (tmp_path / "rows.rank-0-of-1.index").exists()
    assert not [*tmp_path.glob("rows*_*")]
