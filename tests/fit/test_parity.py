"""N workers compute what one worker computes: plain Keras without Paceline against 2, 3 and 4 workers, job by job."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parity.rows import GENERATED

from worlds import Worlds

HERE = Path(__file__).parent
SCRIPT = HERE / "parity_jobs.py"
WORLDS = (2, 3, 4)
IN_EVERY_CHECK = (2,)

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("parity")]

NEWEST_KERAS = ["3", "15"]
"""Only an older one, in `make matrix`, may lack what a job trains."""

RELATIVE_FLOAT64 = 1e-9
RELATIVE_FLOAT32_STEP = 1e-6
RELATIVE_FLOAT16 = 1e-5
RELATIVE_BFLOAT16 = 1e-3
ALLOWED_DRIFT = 2.0
"""Times the drift of one process that adds the same batch in as many parts."""


@dataclass(frozen=True, order=True)
class DeclaredJob:
    """A job as its decorator describes it; read from the source, since importing it would import TensorFlow."""

    name: str
    worlds: tuple[int, ...]
    """Those of every check; on the others it runs in `make proof`."""
    dtype: str


def _declared_jobs() -> Iterator[DeclaredJob]:
    for path in sorted((HERE / "parity").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            for decorator in getattr(node, "decorator_list", ()):
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "job":
                    options = {option.arg: ast.literal_eval(option.value) for option in decorator.keywords}
                    worlds = options.get("worlds", IN_EVERY_CHECK)
                    yield DeclaredJob(node.name, worlds, options.get("dtype", "float64"))
    for name, worlds in GENERATED.items():
        yield DeclaredJob(name, worlds, "float64")


JOBS = tuple(_declared_jobs())


def _cases(wanted: Callable[[DeclaredJob], bool]) -> list[Any]:
    return [
        pytest.param(job.name, size, marks=() if size in job.worlds else pytest.mark.proof)
        for size in WORLDS
        for job in JOBS
        if wanted(job)
    ]


@dataclass(frozen=True)
class Result:
    """What one rank ended with."""

    weights: np.ndarray
    history: dict[str, np.ndarray]


class Runs:
    """The results of the reference and of each world; a job runs when its first result is asked for."""

    def __init__(self, folder: Path, worlds: Worlds) -> None:
        self._folder = folder
        self._worlds = worlds
        self._failed: dict[tuple[str, int], str] = {}

    def result(self, job: str, size: int = 1, rank: int = 0) -> Result:
        folder = self._folder / f"world_of_{size}"
        absent, path = folder / f"{job}.absent", folder / f"{job}.rank{rank}.npz"
        if not absent.exists() and not path.exists():
            folder.mkdir(exist_ok=True)
            self._run(job, size, folder)
        if absent.exists():
            version = absent.read_text()
            assert version.split(".")[:2] != NEWEST_KERAS, f"{job} trains nothing on Keras {version}"
            pytest.skip(f"Keras {version} cannot train {job}, alone or on several workers")
        with np.load(path) as archive:
            return Result(
                archive["weights"],
                {name: archive[name] for name in archive.files if name.startswith("history_")},
            )

    def _run(self, job: str, size: int, folder: Path) -> None:
        """A failure is told by each test that asks, and made once."""
        if (job, size) not in self._failed:
            world = self._worlds.plain if size == 1 else self._worlds.of(size)
            try:
                world.run(SCRIPT, job, folder)
            except AssertionError as failure:
                self._failed[job, size] = str(failure)
            else:
                return
        raise AssertionError(self._failed[job, size])


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, worlds: Worlds) -> Runs:
    return Runs(tmp_path_factory.mktemp("parity"), worlds)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The difference's length, relative to the length of `other`."""
    return float(np.linalg.norm(one.astype("float64") - other) / max(1e-300, np.linalg.norm(other.astype("float64"))))


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: True))
def test_every_rank_has_the_same_weights_and_history_bit_for_bit(runs: Runs, job: str, size: int) -> None:
    chief = runs.result(job, size)
    for rank in range(1, size):
        other = runs.result(job, size, rank)
        assert other.weights.tobytes() == chief.weights.tobytes(), f"weights of rank {rank}"
        assert other.history.keys() == chief.history.keys()
        for name, values in chief.history.items():
            assert other.history[name].tobytes() == values.tobytes(), f"{name} of rank {rank}"


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: job.dtype == "float64"))
def test_workers_compute_what_one_computes(runs: Runs, job: str, size: int) -> None:
    one, several = runs.result(job), runs.result(job, size)
    np.testing.assert_allclose(several.weights, one.weights, rtol=RELATIVE_FLOAT64, atol=1e-12)
    assert distance(several.weights, one.weights) <= RELATIVE_FLOAT64
    assert several.history.keys() == one.history.keys()
    for name, values in one.history.items():
        np.testing.assert_allclose(several.history[name], values, rtol=RELATIVE_FLOAT64, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: "one_step" in job.name and job.dtype == "float32"))
def test_one_step_in_float32_agrees_to_rounding(runs: Runs, job: str, size: int) -> None:
    assert distance(runs.result(job, size).weights, runs.result(job).weights) <= RELATIVE_FLOAT32_STEP


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: job.name.startswith("float32_epochs")))
def test_epochs_in_float32_drift_no_more_than_a_sum_in_parts(runs: Runs, job: str, size: int) -> None:
    one = runs.result(job).weights
    drift = distance(runs.result(job, size).weights, one)
    drift_in_parts = distance(runs.result(f"{job}_in_{size}_parts").weights, one)
    assert drift <= ALLOWED_DRIFT * drift_in_parts, f"{drift:.1e} against {drift_in_parts:.1e} in parts"


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: job.name.startswith("half_precision")))
def test_half_precision_scales_and_skips_alike(runs: Runs, job: str, size: int) -> None:
    one, several = runs.result(job), runs.result(job, size)
    assert distance(several.weights, one.weights) <= RELATIVE_FLOAT16
    assert several.history["history_steps"] == one.history["history_steps"]
    assert several.history["history_scale"] == one.history["history_scale"]
    assert one.history["history_scale"] < 1024.0, "no step overflowed: the job does not test what it says"


@pytest.mark.parametrize(("job", "size"), _cases(lambda job: job.name.startswith("bfloat16")))
def test_bfloat16_agrees_to_its_few_digits(runs: Runs, job: str, size: int) -> None:
    assert distance(runs.result(job, size).weights, runs.result(job).weights) <= RELATIVE_BFLOAT16
