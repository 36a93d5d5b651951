"""TensorFlow's tutorials on custom training give, on several workers, the numbers of one worker without Paceline."""

from pathlib import Path

import numpy as np
import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("guides")]

PROGRAMS = Path(__file__).parent / "guides" / "run_all.py"
LIMIT_SECONDS = 240.0


def _results(folder: Path, rank: int) -> dict[str, np.ndarray]:
    with np.load(folder / f"rank{rank}.npz") as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def of_one(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("one")
    worlds.plain.run_script(PROGRAMS, folder, folder=folder, limit_seconds=LIMIT_SECONDS)
    return _results(folder, 0)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("num_workers", "strategy"),
    [(2, "MirroredStrategy"), (3, "MultiWorkerMirroredStrategy")],
)
def test_the_numbers_of_one_worker(
    worlds: Worlds, of_one: dict[str, np.ndarray], tmp_path: Path, num_workers: int, strategy: str
) -> None:
    worlds.of(num_workers).run_script(PROGRAMS, tmp_path, strategy, folder=tmp_path, limit_seconds=LIMIT_SECONDS)
    for rank in range(num_workers):
        results = _results(tmp_path, rank)
        assert results.keys() == of_one.keys()
        for name, expected in of_one.items():
            np.testing.assert_allclose(results[name], expected, rtol=1e-8, atol=1e-12, err_msg=f"{name}, rank {rank}")
