"""Two data groups of one job train two models: nothing takes the job for the replicas of a model."""

from pathlib import Path

import numpy as np
import pytest

from programs import Ended, run_workers
from ranks import run_ranks
from worlds import Worlds

pytestmark = pytest.mark.processes

_SCRIPT = Path(__file__).with_name("data_groups.py")
_LOOP = Path(__file__).with_name("data_groups_loop.py")
_RANKS = {"regression": (0, 1), "classification": (2, 3)}
LIMIT_SECONDS = 300.0


def trained(folder: Path, model: str, rank: int) -> dict[str, np.ndarray]:
    with np.load(folder / f"{model}.{rank}.npz") as found:
        return dict(found)


def together(folder: Path, way: str) -> Path:
    folder.mkdir()
    variables = {"PACELINE_COMMUNICATION": way}
    results = run_ranks(_SCRIPT, 4, str(folder), timeout_seconds=200, bootstrap=True, variables=variables)
    assert [result.exit_code for result in results] == [0] * 4, "\n".join(map(str, results))
    return folder


def as_one_worker_would(folder: Path, alone: Path, worlds: Worlds) -> None:
    """All ranks of a model have the same bits, and the numbers of one worker."""
    alone.mkdir()
    worlds.not_launched.run_script(_SCRIPT, alone, folder=alone)
    for model, ranks in _RANKS.items():
        one, chiefs = trained(alone, model, 0), trained(folder, model, ranks[0])
        for rank in ranks:
            own = trained(folder, model, rank)
            np.testing.assert_equal(own, chiefs)
            assert own.keys() == one.keys()
            for name, value in one.items():
                np.testing.assert_allclose(
                    own[name], value, rtol=1e-9, atol=1e-12, err_msg=f"{model}, rank {rank}: {name}"
                )


@pytest.mark.slow
@pytest.mark.parametrize("way", ["mpi", pytest.param("ring", marks=pytest.mark.proof)])
def test_each_group_trains_its_model_as_one_worker_would(way: str, worlds: Worlds, tmp_path: Path) -> None:
    """The groups take different numbers of steps of different shapes, at the same time, each with its callbacks."""
    as_one_worker_would(together(tmp_path / "together", way), tmp_path / "alone", worlds)


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kills", "num_resumed"),
    [
        pytest.param(("rank=3,step=20",), 1, id="once, when one model may have been trained"),
        pytest.param(("rank=1,step=7", "rank=3,step=20"), 2, id="twice"),
    ],
)
def test_a_killed_job_resumes_with_both_models_as_one_worker_would_train_them(
    kills: tuple[str, ...], num_resumed: int, worlds: Worlds, tmp_path: Path
) -> None:
    """Snapshots of such jobs were refused. Each model resumes from its own, in the middle of an epoch or behind it.

    Each model finds its own with another number of workers, too: they were called by the first rank of a model, so the
    second one began anew.
    """

    def run(num_workers: int, *options: str) -> Ended:
        kept = ("--snapshot-dir", str(tmp_path / "run"), "--snapshot-every", "3")
        return run_workers(
            num_workers, *options, *kept, _SCRIPT, tmp_path, folder=tmp_path, limit_seconds=LIMIT_SECONDS
        )

    killed = run(4, "--chaos", "; ".join(f"kill:{kill}" for kill in kills), "--max-restarts", str(len(kills)))
    assert killed.code == 0, killed.output
    assert killed.output.count("paceline: resuming from the snapshot of step") >= num_resumed, killed.output
    as_one_worker_would(tmp_path, tmp_path / "alone", worlds)
    expected = {model: trained(tmp_path, model, ranks[0]) for model, ranks in _RANKS.items()}
    again = run(2)
    assert again.code == 0, again.output
    assert again.output.count("had finished after step") == 2, again.output
    for rank, model in enumerate(_RANKS):
        restored = trained(tmp_path, model, rank)
        for name in restored.keys() - {"predicted"}:  # whose rows are divided in another way
            np.testing.assert_array_equal(restored[name], expected[model][name])


@pytest.mark.proof
@pytest.mark.parametrize("size", [2, 4])
def test_a_loop_of_two_models_resumes_from_one_snapshot(size: int, tmp_path: Path) -> None:
    """Its ranks take each snapshot together, so it has a part of each model, and what each rank has of a metric."""
    run = ("--max-restarts", "1", _LOOP, tmp_path / "run")
    ended = run_workers(size, *run, folder=tmp_path, limit_seconds=LIMIT_SECONDS)
    assert ended.code == 0, ended.output
    said = [
        line.partition(word)[1:] for line in ended.output.splitlines() for word in ("FIRST ", "END ") if word in line
    ]
    lines = {word + rest for word, rest in said}
    # 12 steps, each of which adds the model's number to the weights, and the rank's to the metric.
    assert lines >= {
        f"END {rank} {100.0 * model + 12 * model} {12.0 * rank}"
        for rank, model in enumerate(sorted([1, 2] * (size // 2)))
    }
    firsts = [int(rest.split()[1]) for word, rest in said if word == "FIRST "]
    assert firsts[:size] == [0] * size
    assert min(firsts[size:]) > 0, "nothing was resumed"
