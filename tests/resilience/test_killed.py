"""Real workers, really killed: run again, the same command goes on and ends with the same bits."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from paceline.cluster import environment
from paceline.errors import EXIT_PREEMPTED
from programs import Ended, run_python, run_workers

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("killed")]

SCRIPT = Path(__file__).parent / "killed.py"
LIMIT_SECONDS = 240.0
SEED = "5"


def one_worker(folder: Path, variables: Mapping[str, str]) -> Ended:
    """A launched worker that is alone, without a launcher that would draw another seed for each run."""
    launched = {
        environment.TASK: "worker 0",
        environment.RANK: "0",
        environment.WORLD_SIZE: "1",
        environment.LOCAL_RANK: "0",
        environment.LOCAL_WORLD_SIZE: "1",
        environment.GENERATION: "1",
        environment.JOB_ID: "0123abcd",
        environment.SEED: SEED,
    }
    return run_python(
        "-P",
        "-m",
        "paceline.bootstrap",
        SCRIPT,
        folder=folder,
        limit_seconds=LIMIT_SECONDS,
        variables={**launched, **variables},
    )


def end_of(ended: Ended) -> str:
    """What the chief printed last: the digest of the weights, and the history."""
    lines = {line.partition("END ")[2] for line in ended.output.splitlines() if "END " in line}
    assert len(lines) == 1, ended.output
    return lines.pop()


def snapshots(folder: Path, every: str = "1") -> dict[str, str]:
    return {"PACELINE_SNAPSHOT_DIR": str(folder / "snapshots"), "PACELINE_SNAPSHOT_EVERY": every}


@pytest.mark.proof
@pytest.mark.parametrize("steps", [(24,), (8, 24)], ids=["once", "twice"])
def test_one_worker_with_an_unseeded_shuffle_that_is_killed(tmp_path: Path, steps: tuple[int, ...]) -> None:
    undisturbed = end_of(one_worker(tmp_path, {}))
    variables = snapshots(tmp_path, "3")
    for step in steps:
        killed = one_worker(tmp_path, {**variables, "BLOW": f"SIGKILL 0 {step}"})
        assert killed.code == -9, killed.output
    resumed = one_worker(tmp_path, variables)
    assert "resuming from the snapshot of step" in resumed.output
    assert end_of(resumed) == undisturbed
    again = one_worker(tmp_path, variables)
    assert "call 1 of fit had finished after step 30 (3 epochs) and is not repeated" in again.output
    assert end_of(again) == undisturbed


@pytest.mark.proof
def test_two_workers_killed_or_told_to_stop_and_then_one(tmp_path: Path) -> None:
    """The launcher gives each run the same seed here, as it does for a job that goes on.

    In float64, where sums in another order, as on one worker at the end, do not grow into another run.
    """
    variables = {**snapshots(tmp_path), environment.SEED: SEED}

    def run(blow: str, *, num_workers: int = 2) -> Ended:
        told = {**variables, "BLOW": blow}
        script = (SCRIPT, "float64")
        return run_workers(num_workers, *script, folder=tmp_path, limit_seconds=LIMIT_SECONDS, variables=told)

    undisturbed = run_workers(
        1, SCRIPT, "float64", folder=tmp_path, limit_seconds=LIMIT_SECONDS, variables={environment.SEED: SEED}
    )
    assert undisturbed.code == 0, undisturbed.output
    expected = np.load(tmp_path / "weights.npy")
    (tmp_path / "weights.npy").unlink()

    killed = run("SIGKILL 1 12")
    assert killed.code != 0
    assert "paceline: run the same command again to continue from snapshot step-0000000000" in killed.output
    told = run("SIGTERM 1 17")
    assert told.code == EXIT_PREEMPTED, told.output
    assert "all ranks stop after step 18" in told.output
    assert told.output.lower().count("run the same command again") == 1
    assert "run the same command again" in told.output.splitlines()[-1]
    told = run("SIGUSR1 0 22 launcher")
    assert told.code == EXIT_PREEMPTED, told.output
    assert "resuming from the snapshot of step 18" in told.output
    resumed = run("", num_workers=1)
    assert resumed.code == 0, resumed.output
    assert "taken by 2 ranks, resumed by 1" in resumed.output, resumed.output
    np.testing.assert_allclose(np.load(tmp_path / "weights.npy"), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("data", "blow"),
    [
        pytest.param(("records",), "SIGKILL 1 17", marks=pytest.mark.proof),
        pytest.param(("items", "2"), "SIGKILL 0 17", marks=pytest.mark.proof),
        pytest.param(("items", "1"), "SIGKILL 0 17", marks=pytest.mark.proof),
        pytest.param(("items", "1"), "SIGKILL 1 14", marks=pytest.mark.proof),
        pytest.param(("items", "2"), "SIGKILL 1 20", marks=pytest.mark.proof),
    ],
    ids=["records", "items", "maker of all items", "taker of items", "items at the end of an epoch"],
)
def test_two_workers_that_are_killed_and_then_two_or_one(tmp_path: Path, data: tuple[str, ...], blow: str) -> None:
    """Data that each rank makes a part of, or one all: the same bits on as many workers, the same batches on one."""

    def run(num_workers: int, folder: Path, variables: Mapping[str, str], blow: str = "") -> Ended:
        told = {**variables, environment.SEED: SEED, "BLOW": blow}
        script = (SCRIPT, "float64", *data)
        return run_workers(num_workers, *script, folder=folder, limit_seconds=LIMIT_SECONDS, variables=told)

    undisturbed = end_of(run(2, tmp_path, {}))
    expected = np.load(tmp_path / "weights.npy")
    variables = snapshots(tmp_path, "3")
    assert run(2, tmp_path, variables, blow).code != 0
    shutil.copytree(tmp_path / "snapshots", tmp_path / "copied")
    [*_, newest] = sorted((tmp_path / "snapshots").glob("step-*/manifest.json"))
    assert 10 < int(newest.parent.name.split("-")[1]) < 20  # in the second epoch
    resumed = run(2, tmp_path, variables)
    assert "resuming from the snapshot of step" in resumed.output
    assert "reading the data again" not in resumed.output
    assert end_of(resumed) == undisturbed
    on_one = run(1, tmp_path, {**variables, "PACELINE_SNAPSHOT_DIR": str(tmp_path / "copied")})
    assert "taken by 2 ranks, resumed by 1" in on_one.output, on_one.output
    np.testing.assert_allclose(np.load(tmp_path / "weights.npy"), expected, rtol=1e-9)


@pytest.mark.proof
def test_compressed_records_on_two_workers_that_are_killed(tmp_path: Path) -> None:
    """Each rank reads its files again up to its position; one of them runs out of rows before the other."""

    def run(variables: Mapping[str, str], blow: str = "") -> Ended:
        told = {**variables, environment.SEED: SEED, "BLOW": blow}
        script = (SCRIPT, "float64", "compressed")
        return run_workers(2, *script, folder=tmp_path, limit_seconds=LIMIT_SECONDS, variables=told)

    undisturbed = run({})
    assert "whole files are dealt to the ranks" in undisturbed.output
    variables = snapshots(tmp_path, "3")
    assert run(variables, "SIGKILL 1 20").code != 0
    resumed = run(variables)
    assert "resuming from the snapshot of step" in resumed.output
    assert end_of(resumed) == end_of(undisturbed)


PLAIN = """
import os, sys
from paceline.callbacks import Snapshot
from paceline.fit.snapshots import resumable_fit
import keras, numpy as np

class Dies(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if len(sys.argv) > 2 and epoch == 1:
            for manager in resumable_fit._process.managers.values():
                manager.settle(20)
            os._exit(9)

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
rows = np.random.rand(320, 4).astype("float32")
options = dict(epochs=3, verbose=0, callbacks=[Dies(), Snapshot(sys.argv[1], every_steps=4)])
print("END", model.fit(rows, rows.sum(1), **options).history, model.get_weights()[0].tobytes().hex())
"""


def test_a_plain_script_with_the_callback(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    undisturbed = run_python(script, tmp_path / "a", folder=tmp_path)
    assert run_python(script, tmp_path / "b", "dies", folder=tmp_path).code == 9
    resumed = run_python(script, tmp_path / "b", folder=tmp_path)
    assert "resuming from the snapshot of step 20: epoch 2, after 10 of its steps" in resumed.output
    assert resumed.lines("END") == undisturbed.lines("END") != []


@pytest.mark.proof
def test_a_callback_that_comes_too_late_says_so(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(
        "import keras, numpy as np\n"
        "model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])\n"
        "model.compile('sgd', 'mse')\n"
        "import paceline\n"
        "model.fit(np.ones((8, 4)), np.ones(8), callbacks=[paceline.callbacks.Snapshot('kept')])\n"
    )
    ended = run_python(script, folder=tmp_path)
    assert ended.code == 1
    assert "Put `from paceline.callbacks import Snapshot` at the top of the script." in ended.output
