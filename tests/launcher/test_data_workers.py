"""`paceline run --data-workers`: which rows the ranks get, what the death of a process means, and that none is left."""

import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.launcher.conftest import Finished, Job, wait_until

from process_table import Seen
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("served_rows.py")
LIMIT_SECONDS = 300.0

Rows = list[list[int]]


class Served:
    """A job with data workers."""

    def __init__(self, begin: Callable[..., Job], folder: Path, pipeline: str, epochs: int, *options: str) -> None:
        self.folder = folder
        command = (sys.executable, "-m", "paceline", "run", "--seed", "5", *options)
        self.job = begin(*command, str(SCRIPT), str(folder), pipeline, str(epochs))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        wait_until(lambda: condition() or self.job.process.poll() is not None, LIMIT_SECONDS)
        if not condition():
            self.job.kill_everything()
            pytest.fail("".join(self.job.process.communicate(timeout=60)))

    def process(self, task: str) -> Seen:
        return next(one for one in self.job.find("paceline.bootstrap") if one.environment.get("PACELINE_TASK") == task)

    def finish(self) -> Finished:
        finished = self.job.finish(LIMIT_SECONDS)
        assert self.job.is_gone()
        return finished


def lines_of(folder: Path, rank: int) -> list[dict]:
    path = folder / f"rows-{rank}"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rows_of_steps(folder: Path) -> Rows:
    """The rows of each step, which the chief notes; all times alike, if a step was made again."""
    steps: dict[int, Counter] = {}
    for line in lines_of(folder, 0):
        steps.setdefault(line["step"], Counter())[tuple(line["rows"])] += 1
    assert all(len(found) == 1 for found in steps.values()), steps
    assert sorted(steps) == list(range(len(steps)))
    return [list(next(iter(steps[step]))) for step in sorted(steps)]


@pytest.fixture
def plain(worlds: Worlds, tmp_path: Path) -> Callable[[str, int], tuple[Rows, list[float]]]:
    """What plain Keras does: the rows of each step, and the losses of validations."""

    def run(pipeline: str, epochs: int) -> tuple[Rows, list[float]]:
        folder = tmp_path / "plain"
        folder.mkdir()
        worlds.plain.run_script(SCRIPT, str(folder), pipeline, str(epochs), folder=folder)
        return rows_of_steps(folder), json.loads((folder / "losses").read_text())

    return run


@pytest.mark.parametrize(
    ("size", "pipeline"),
    [
        pytest.param(2, "unknown", marks=pytest.mark.proof),
        pytest.param(1, "known", marks=pytest.mark.proof),
        pytest.param(1, "unknown", marks=pytest.mark.proof),
        pytest.param(2, "known", marks=pytest.mark.proof),
        pytest.param(3, "known", marks=pytest.mark.proof),
        pytest.param(3, "unknown", marks=pytest.mark.proof),
    ],
)
def test_one_data_worker_gives_the_batches_of_plain_keras_also_behind_a_restart(
    begin: Callable[..., Job], plain: Callable[..., tuple[Rows, list[float]]], tmp_path: Path, size: int, pipeline: str
):
    options = ("--snapshot-dir", str(tmp_path / "snapshots"), "--snapshot-every", "2", "--max-restarts", "1")
    chaos = ("--chaos", f"kill:rank={size - 1},step=6")
    job = Served(begin, tmp_path, pipeline, 3, "--workers", str(size), "--data-workers", "1", *options, *chaos)
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    assert "paceline: generation 2 begins" in finished.told
    expected_rows, expected_losses = plain(pipeline, 3)
    assert rows_of_steps(tmp_path) == expected_rows
    losses = json.loads((tmp_path / "losses").read_text())
    assert losses == pytest.approx(expected_losses, rel=1e-6)


def test_two_data_workers_make_each_row_once_and_one_that_dies_is_started_again(
    begin: Callable[..., Job], tmp_path: Path
):
    job = Served(begin, tmp_path, "known", 3, "--workers", "2", "--data-workers", "2", "--max-restarts", "1")
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    epochs = [line.split() for line in (tmp_path / "epochs-0").read_text().splitlines()]
    begins = [int(step) for _, _, step in epochs]
    seen = lines_of(tmp_path, 0)
    for first, end in zip(begins, [*begins[1:], None], strict=True):
        if end is not None:
            rows = [row for line in seen if first <= line["step"] < end for row in line["rows"]]
            assert sorted(rows) == list(range(20))
    assert "data 0, data 1" in finished.told[1]


@pytest.mark.proof
@pytest.mark.parametrize("num_data_workers", [1, 2])
def test_a_killed_data_worker(begin: Callable[..., Job], tmp_path: Path, num_data_workers: int):
    (tmp_path / "slow").touch()
    options = ("--workers", "2", "--data-workers", str(num_data_workers), "--max-restarts", "1")
    job = Served(begin, tmp_path, "known", 4, *options)
    job.wait_for(lambda: len(lines_of(tmp_path, 0)) > 3)
    killed = job.process(f"data {num_data_workers - 1}")
    killed.send(signal.SIGKILL)
    (tmp_path / "slow").unlink()
    (tmp_path / "go").touch()
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    told = "\n".join(finished.told)
    name = f"data {num_data_workers - 1}"
    assert re.search(rf"paceline: {name} \(\S+\) was killed by signal 9 \(SIGKILL\)\.", told), told
    if num_data_workers == 1:
        assert "paceline: generation 2 begins" in finished.told
    else:
        assert f"paceline: {name} is started again; the others go on" in told
        assert "generation 2" not in told


def test_a_dataset_of_python_and_a_job_without_data_workers_are_refused_and_nothing_is_left(
    begin: Callable[..., Job], tmp_path: Path
):
    job = Served(begin, tmp_path, "known", 1, "--workers", "1")
    finished = job.finish()
    assert finished.code != 0
    assert "Start it with `paceline run --data-workers 1`" in finished.stderr


def test_batches_of_two_sizes_are_refused(begin: Callable[..., Job], tmp_path: Path):
    """Each component was cut by its own rows, and both were taken for rows of the same batch."""
    finished = Served(begin, tmp_path, "two sizes", 1, "--workers", "2", "--data-workers", "1").finish()
    assert finished.code == 78
    assert "data[1][0], data[1][1] were batched with another size than the others" in finished.stderr
    assert "[rows-differ]" in finished.stderr


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_data_worker_is_left_over(begin: Callable[..., Job], tmp_path: Path, number: signal.Signals):
    (tmp_path / "slow").touch()
    job = Served(begin, tmp_path, "known", 100, "--workers", "1", "--data-workers", "2")
    job.wait_for(lambda: len(lines_of(tmp_path, 0)) > 3)
    assert job.process("data 0").pid != job.process("data 1").pid
    job.job.process.send_signal(number)
    finished = job.finish()
    assert finished.code != 0
