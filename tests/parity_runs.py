"""The parity jobs as their decorators describe them, and their results: of one process, of workers, of pipelines."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from parity.rows import GENERATED
from worlds import Worlds

HERE = Path(__file__).parent
SCRIPT = HERE / "parity_jobs.py"
WORLDS = (2, 3, 4)
IN_EVERY_CHECK = (2,)

NEWEST_KERAS = ["3", "15"]
"""Only an older one, in `make matrix`, may lack what a job trains."""

RELATIVE_FLOAT64 = 1e-9
RELATIVE_FLOAT32_STEP = 1e-6
RELATIVE_FLOAT16 = 1e-5
RELATIVE_BFLOAT16 = 1e-3


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


@dataclass(frozen=True)
class Pipeline:
    """How a job is trained in stages; see `paceline.PipelineStrategy`."""

    workers: int
    stages: int
    micro_batches: int
    schedule: str

    def __str__(self) -> str:
        return f"{self.stages}x{self.workers // self.stages}-{self.micro_batches}-{self.schedule}"


@dataclass(frozen=True)
class Shared:
    """Workers that have rows by ``--shares``; with ``auto`` two, whose shares change every few steps."""

    shares: str

    @property
    def workers(self) -> int:
        """How many they are."""
        return 2 if self.shares == "auto" else len(self.shares.split(","))

    def __str__(self) -> str:
        return f"{self.workers} by {self.shares.replace(',', '-')}"


TWO_STAGES = Pipeline(2, 2, 4, "1f1b")
REPLICAS = Pipeline(4, 2, 2, "gpipe")


@dataclass(frozen=True)
class Result:
    """What one rank ended with."""

    weights: np.ndarray
    """Of a pipeline: not a number where a weight is another stage's."""
    history: dict[str, np.ndarray]


class Runs:
    """The results of the reference and of each world; a job runs when its first result is asked for."""

    def __init__(self, folder: Path, worlds: Worlds) -> None:
        self._folder = folder
        self._worlds = worlds
        self._failed: dict[tuple[str, int | Pipeline | Shared], str] = {}

    def result(self, job: str, world: int | Pipeline | Shared = 1, rank: int = 0) -> Result:
        """What a rank ended with; the world is given by its size, or as a pipeline."""
        folder = self._folder / f"world_of_{world}"
        absent, path = folder / f"{job}.absent", folder / f"{job}.rank{rank}.npz"
        if not absent.exists() and not path.exists():
            folder.mkdir(exist_ok=True)
            self._run(job, world, folder)
        if absent.exists():
            version = absent.read_text()
            assert version.split(".")[:2] != NEWEST_KERAS, f"{job} trains nothing on Keras {version}"
            pytest.skip(f"Keras {version} cannot train {job}, alone or on several workers")
        with np.load(path) as archive:
            return Result(
                archive["weights"],
                {name: archive[name] for name in archive.files if name.startswith("history_")},
            )

    def whole(self, job: str, pipeline: Pipeline) -> Result:
        """The weights of all stages; ranks with the same one have the same bits, and all ranks the same history."""
        ranks = [self.result(job, pipeline, rank) for rank in range(pipeline.workers)]
        weights = ranks[0].weights.copy()
        for rank, one in enumerate(ranks):
            assert one.history.keys() == ranks[0].history.keys()
            for name, values in one.history.items():
                assert values.tobytes() == ranks[0].history[name].tobytes(), f"{name} of rank {rank}"
            is_here = ~np.isnan(one.weights)
            in_both = is_here & ~np.isnan(weights)
            assert weights[in_both].tobytes() == one.weights[in_both].tobytes(), f"weights of rank {rank}"
            weights[is_here] = one.weights[is_here]
        assert not np.isnan(weights).any(), "weights that no stage has"
        assert any(np.isnan(one.weights).any() for one in ranks), "all stages have all weights"
        return Result(weights, ranks[0].history)

    def refusals(self, job: str, pipeline: Pipeline) -> list[str]:
        """What each rank of a pipeline is told that cannot train this job."""
        return (
            self._worlds.of(pipeline.workers, in_stages=True).run(SCRIPT, job, self._folder, *_arguments(pipeline)).told
        )

    def _run(self, job: str, world: int | Pipeline | Shared, folder: Path) -> None:
        """A failure is told by each test that asks, and made once."""
        if (job, world) not in self._failed:
            if isinstance(world, Pipeline):
                running = self._worlds.of(world.workers, in_stages=True)
            elif isinstance(world, Shared):
                running = self._worlds.of(world.workers, shares=world.shares)
            else:
                running = self._worlds.plain if world == 1 else self._worlds.of(world)
            try:
                told = running.run(SCRIPT, job, folder, *_arguments(world)).told
                assert not any(told), told
            except AssertionError as failure:
                self._failed[job, world] = str(failure)
            else:
                return
        raise AssertionError(self._failed[job, world])


def _arguments(world: int | Pipeline | Shared) -> tuple[str, ...]:
    return (str(world.stages), str(world.micro_batches), world.schedule) if isinstance(world, Pipeline) else ()


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """The difference's length, relative to the length of `other`."""
    return float(np.linalg.norm(one.astype("float64") - other) / max(1e-300, np.linalg.norm(other.astype("float64"))))
