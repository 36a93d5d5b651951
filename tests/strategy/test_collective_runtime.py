"""TensorFlow's own collectives in graphs, and training through them, in real processes."""

from pathlib import Path

import numpy as np
import pytest

from paceline.cluster.communication import Communication
from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.comm.world import World
from paceline.errors import EXIT_CONFIGURATION, ConfigurationError
from paceline.strategy.collective_runtime import refuse_by_hand, use_tensorflow_collectives
from ranks import run_ranks
from worlds import Worlds

_FOLDER = Path(__file__).parent
_JOBS = _FOLDER.parent / "parity_jobs.py"
_RING = {"PACELINE_COMMUNICATION": "ring"}


def _world_without_place() -> World:
    identity = WorkerIdentity(
        task=Task(WORKER, 0),
        rank=0,
        world_size=2,
        local_rank=0,
        local_world_size=2,
        generation=1,
        job_id="test",
        seed=1,
    )
    return World(identity, connect=lambda: pytest.fail("nobody talks here"))


@pytest.mark.proof
@pytest.mark.processes
def test_every_collective_in_graphs() -> None:
    size = 3  # two train, below
    results = run_ranks(_FOLDER / "native_rank.py", size, timeout_seconds=150, bootstrap=True, variables=_RING)
    story = "\n".join(map(str, results))
    assert [result.exit_code for result in results] == [0] * size, story
    assert all("all checks passed" in result.stdout for result in results), story


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize(
    "jobs",
    [
        ("adam_with_clipnorm", "masked_sequences"),
        pytest.param(
            ("every_size_up_to_two_rows_in_the_second_batch", "three_steps_per_execution"), marks=pytest.mark.proof
        ),
    ],
    ids=lambda jobs: jobs[0],
)
def test_training_over_ring_gives_the_numbers_of_one_worker(
    tmp_path: Path, worlds: Worlds, jobs: tuple[str, ...]
) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    results = run_ranks(_JOBS, 2, str(together), *jobs, timeout_seconds=200, bootstrap=True, variables=_RING)
    assert [result.exit_code for result in results] == [0, 0], "\n".join(map(str, results))
    for job in jobs:
        worlds.plain.run(_JOBS, job, alone)
        one = np.load(alone / f"{job}.rank0.npz")
        for rank in range(2):
            two = np.load(together / f"{job}.rank{rank}.npz")
            assert set(one.files) == set(two.files)
            for name in one.files:
                np.testing.assert_allclose(two[name], one[name], rtol=1e-9, err_msg=f"{job}, rank {rank}: {name}")


@pytest.mark.proof
@pytest.mark.processes
def test_after_an_operation_it_is_too_late() -> None:
    results = run_ranks(_FOLDER / "late_rank.py", 2, timeout_seconds=60)
    for result in results:
        assert result.exit_code == 0, result
        assert "PACELINE_COMMUNICATION=ring must be set up before the first TensorFlow operation" in result.stdout
        assert "unset PACELINE_COMMUNICATION to use MPI" in result.stdout


@pytest.mark.proof
@pytest.mark.processes
def test_an_unknown_way_ends_the_worker_before_its_script() -> None:
    results = run_ranks(
        _FOLDER / "late_rank.py",
        2,
        timeout_seconds=60,
        bootstrap=True,
        variables={"PACELINE_COMMUNICATION": "gloo"},
    )
    for result in results:
        assert result.exit_code == EXIT_CONFIGURATION, result
        assert result.failure is not None
        assert 'received "gloo"; expected mpi or ring or nccl' in result.failure.exception


def test_nccl_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorflow.config.list_physical_devices", lambda kind: [])
    with pytest.raises(ConfigurationError, match="TensorFlow sees no GPU in the process of rank 0"):
        use_tensorflow_collectives(_world_without_place(), Communication.NCCL)


def test_a_world_without_addresses_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no TF_CONFIG"):
        use_tensorflow_collectives(_world_without_place(), Communication.RING)


def test_a_process_started_by_hand_is_told_what_it_can_have() -> None:
    refuse_by_hand({})
    refuse_by_hand({"PACELINE_COMMUNICATION": "mpi"})
    with pytest.raises(ConfigurationError, match="started by hand, which supports only 'mpi'"):
        refuse_by_hand({"PACELINE_COMMUNICATION": "ring"})
