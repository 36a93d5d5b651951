"""Files under several workers: one writer each, whole at any moment, there when a save returns, and no hang."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from programs import Ended, run_workers, start_python
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1900), pytest.mark.xdist_group("files")]

HERE = Path(__file__).parent
SCRIPT = HERE / "files_jobs.py"
READER = HERE / "files" / "reader.py"
LIMIT_SECONDS = 600.0
LONG = (
    "a_loaded_model_trains_on",
    "backup_and_restore_goes_on_where_it_was",
    "csv_logger_has_one_header_and_one_row_an_epoch",
    "weights_that_come_back_are_saved_again",
)
"""Cases that train several times: half of the time of all. Jobs of `make proof` run them, see `long_job`."""

PREDICT = """
import sys, keras, numpy as np
model = keras.models.load_model(sys.argv[1])
assert "paceline" not in sys.modules
rows = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
np.save(sys.argv[2], model(rows))
"""


@dataclass(frozen=True)
class Job:
    """A world that has run cases, and the process that read beside it."""

    directory: Path
    size: int
    ended: Ended
    reader: Ended

    @property
    def num_saves(self) -> int:
        """Of which a reader may meet a half-written one: some in every check, many in `make proof`."""
        return 50 if self.size > 2 else 8

    def told(self, case: str) -> list[Any]:
        """What each rank told of a case."""
        files = [self.directory / f"{case}.rank{rank}.json" for rank in range(self.size)]
        assert all(file.exists() for file in files), self.ended.output
        return [json.loads(file.read_text()) for file in files]

    def same(self, case: str) -> Any:
        """What all ranks told alike."""
        chiefs, *others = self.told(case)
        assert all(other == chiefs for other in others), [chiefs, *others]
        return chiefs


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.proof)])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """All cases but the long ones."""
    directory = tmp_path_factory.mktemp(f"files_of_{request.param}")
    watched = directory / "a_reader_loads_through_many_saves"
    reader = start_python(READER, watched, str(request.param), folder=directory)
    arguments = (directory, "without", *LONG)
    try:
        ended = run_workers(request.param, SCRIPT, *arguments, folder=directory, limit_seconds=LIMIT_SECONDS)
        (directory / "output").write_text(ended.output)
        return Job(directory, request.param, ended, reader.ended(LIMIT_SECONDS))
    finally:
        if reader.process.poll() is None:
            reader.kill()


@pytest.fixture(scope="module", params=[2, 3])
def long_job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The long cases, without a reader."""
    directory = tmp_path_factory.mktemp(f"long_files_of_{request.param}")
    ended = run_workers(request.param, SCRIPT, directory, *LONG, folder=directory, limit_seconds=LIMIT_SECONDS)
    return Job(directory, request.param, ended, ended)


def _plain(worlds: Worlds, directory: Path, case: str) -> Job:
    """A case in one process of plain Keras, without Paceline."""
    ended = Ended(0, worlds.plain.run_script(SCRIPT, directory, case, folder=directory).output, 0.0)
    return Job(directory, 1, ended, ended)


def test_the_workers_come_to_their_end(job: Job) -> None:
    assert job.ended.code == 0, job.ended.output


@pytest.mark.proof
def test_the_workers_of_the_long_cases_come_to_their_end(long_job: Job) -> None:
    assert long_job.ended.code == 0, long_job.ended.output


def test_nothing_is_left_of_the_ranks_private_directory(job: Job) -> None:
    private, was_there = job.same("private")
    assert was_there
    assert not Path(private).exists()
    left = [path for path in job.directory.rglob("*") if path.name.endswith(".unfinished")]
    assert not left


def test_every_format_is_there_on_every_rank_right_after_its_save(job: Job) -> None:
    loaded = job.same("every_format_is_there_right_after_its_save")
    assert loaded == dict.fromkeys(loaded, True)
    assert len(loaded) == 10
    assert job.same("exports_serve_the_same") == [True, True, True]


def test_what_all_ranks_download_one_downloads(job: Job) -> None:
    told = job.told("a_download_is_done_once")
    assert [found for found, _ in told] == [[100_000, "digits.npz", True]] * job.size
    assert sum(renames for _, renames in told) == 1


def test_plain_keras_loads_the_file_and_predicts_the_same(worlds: Worlds, job: Job, tmp_path: Path) -> None:
    directory = job.directory / "every_format_is_there_right_after_its_save"
    (tmp_path / "predict.py").write_text(PREDICT)
    arguments = (directory / "model.keras", tmp_path / "predictions.npy")
    worlds.plain.run_script(tmp_path / "predict.py", *arguments, folder=tmp_path)
    for rank in range(job.size):
        expected = np.load(directory / f"predictions.rank{rank}.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "predictions.npy"), expected)


def test_each_save_is_written_by_one_rank(job: Job) -> None:
    assert sum(job.told("each_save_is_written_by_one_rank")) == 10


def test_the_chief_alone_may_save_and_all_may_save_after_it(job: Job) -> None:
    assert job.same("the_chief_alone_saves") == [True, 8]
    assert job.same("a_follower_alone_saves_after_all_have") == 8


@pytest.mark.proof
def test_a_loaded_model_trains_on(long_job: Job) -> None:
    assert long_job.same("a_loaded_model_trains_on") == 8


def test_each_ranks_own_path_is_written(job: Job) -> None:
    assert job.same("each_rank_saves_to_its_own_path_as_the_tutorial_does") == [True, 4]
    found = job.told("each_rank_keeps_its_own_as_the_tutorial_does")
    assert [of_rank[0] for of_rank in found] == [True] * job.size


@pytest.mark.proof
def test_weights_that_come_back_are_saved_again(long_job: Job) -> None:
    assert long_job.same("weights_that_come_back_are_saved_again") is True


@pytest.mark.parametrize(
    ("fault", "error", "name"),
    [
        ("missing", "FileNotFoundError", "missing/model.keras"),
        ("missing weights", "FileNotFoundError", "missing/w.weights.h5"),
        ("read-only", "FileNotFoundError", "/proc/model.keras"),
        ("taken", "IsADirectoryError", "taken.keras"),
        ("extension", "ValueError", "model.tar"),
    ],
)
def test_a_save_that_fails_tells_every_rank_the_users_path(job: Job, fault: str, error: str, name: str) -> None:
    told = job.same("faults_are_told_to_every_rank_that_saves")
    assert told[fault].startswith(error)
    assert name in told[fault]
    assert ".unfinished" not in told[fault]
    assert told["after"] == ""


def test_a_reader_never_sees_a_broken_or_missing_file(job: Job) -> None:
    assert job.reader.code == 0, job.reader.output
    num_loads, *last = map(int, job.reader.output.split()[-5:])
    assert num_loads >= 2
    assert last == [job.num_saves - 1] * 4
    written = np.sum(job.told("a_reader_loads_through_many_saves"), axis=0)
    np.testing.assert_array_equal(written, job.num_saves)


def test_model_checkpoint_does_what_it_does_with_one_worker(worlds: Worlds, job: Job, tmp_path: Path) -> None:
    case = "model_checkpoint_with_every_option"
    several, one = job.same(case), _plain(worlds, tmp_path, case).same(case)
    assert several["is_whole"]
    for told in (several, one):
        del told["best"]["best_batches"]  # of a batch's logs, which are one rank's
    assert several["best"] == pytest.approx(one["best"], rel=1e-4)
    without_loss = [[name for name in told["files"] if "-4-" not in name] for told in (several, one)]
    assert without_loss[0] == without_loss[1]
    assert len(several["files"]) == len(one["files"])
    assert job.same("model_checkpoint_on_the_chief_alone") == ["1.keras", "2.keras", "all.keras"]
    assert "existing directory" in job.same("model_checkpoint_says_what_is_wrong_on_every_rank")


@pytest.mark.proof
def test_backup_and_restore_resumes_all_ranks_at_one_epoch(worlds: Worlds, long_job: Job, tmp_path: Path) -> None:
    case = "backup_and_restore_goes_on_where_it_was"
    for several, one in zip(long_job.same(case), _plain(worlds, tmp_path, case).same(case), strict=True):
        assert several["error"] == "InterruptedError: stopped"
        assert several["epochs"] == one["epochs"] == [2, 3]
        assert several["weights"] == pytest.approx(one["weights"], rel=1e-4)
        assert several["left"] == one["left"]


@pytest.mark.proof
def test_csv_logger_writes_one_header_and_one_row_an_epoch(long_job: Job) -> None:
    case = "csv_logger_has_one_header_and_one_row_an_epoch"
    assert long_job.same(case) == [True, True]
    rows = (long_job.directory / case / "log.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "0", "1", "2", "0", "1"]
    rows = (long_job.directory / case / "own.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "0", "1", "2"]


def test_tensorboard_writes_one_set_of_events(job: Job) -> None:
    case = "tensorboard_writes_one_set_of_events"
    assert job.same(case) is True
    events = {
        folder: len(list((job.directory / case / folder).glob("events.out.tfevents.*")))
        for folder in ("all/train", "all/validation", "plain/train", "embeddings/train")
    }
    assert events == dict.fromkeys(events, 1)
    assert len(list((job.directory / case).rglob("*.xplane.pb"))) == 1
    assert (job.directory / case / "embeddings" / "projector_config.pbtxt").is_file()


def test_callbacks_for_the_chief_only_are_heard_there_only(job: Job) -> None:
    chiefs, *others = job.told("callbacks_for_the_chief_only")
    assert sorted(chiefs[0]) == ["class", "class", "everywhere", "instance", "instance", "test"]
    for heard, *knows in others:
        assert heard == ["everywhere"]
        assert knows == chiefs[1:], "its model and its parameters"


def test_checkpoint_managers_of_all_ranks_keep_one_directory(job: Job) -> None:
    told = job.same("a_checkpoint_manager_on_every_rank")
    kept = [f"ckpt-{number}.{part}" for number in (3, 4) for part in ("data-00000-of-00001", "index")]
    assert told["files"] == ["checkpoint", *kept]
    assert told["kept"] == ["ckpt-3", "ckpt-4"]
    assert told["books"][-1] == ["ckpt-4", "ckpt-3", "ckpt-4"]
    assert told["is_restored"]


def test_checkpoints_without_a_manager(job: Job) -> None:
    told = job.same("checkpoints_without_a_manager")
    assert told["paths"] == ["saved-1", "saved-2", "written"]
    assert told["latest"] == "saved-2"
    assert told["is_restored"]


def test_the_chief_alone_keeps_checkpoints(job: Job) -> None:
    assert job.same("the_chief_alone_keeps_checkpoints") == ["checkpoint", "ckpt-3.data-00000-of-00001", "ckpt-3.index"]


def test_a_sum_over_ranks_is_saved_by_all_together(job: Job) -> None:
    told = job.same("a_sum_over_ranks_is_saved_by_all_together")
    assert told["paths"] == ["ckpt-1", "ckpt-2"]
    assert told["total"] == 2.0 * job.size
    assert told["files"] == ["checkpoint", "ckpt-2.data-00000-of-00001", "ckpt-2.index"]


def test_a_model_with_a_sum_over_ranks_is_exported_by_all_together(job: Job) -> None:
    """It hung: the first rank held the file's lock while it read what all ranks had to read with it."""
    told = job.same("a_model_with_a_sum_over_ranks_is_exported_by_all_together")
    assert told["is_served"]
    assert told["seen"] == [40.0, 40.0]
    assert told["is_kept"]


def test_a_saved_model_is_written_by_one_rank(job: Job) -> None:
    case = "a_saved_model_is_written_by_one_rank"
    told = job.same(case)
    assert told == {"saved": [[1.0, number] for number in range(3)], "is_served": True, "own": True}
    own = {*(f"own{rank}" for rank in range(job.size)), *(f"module{number}" for number in range(3))}
    assert {path.name for path in (job.directory / case).iterdir()} == {"model", "chiefs", *own}


def test_declaring_a_callback_chief_only_loads_nothing_heavy_and_refuses_what_is_none(tmp_path: Path) -> None:
    script = (
        "import sys, paceline\n"
        "class Callback:\n"
        "    def on_train_begin(self, logs=None): ...\n"
        "callback = Callback()\n"
        "assert paceline.chief_only(callback) is callback and paceline.chief_only(Callback) is Callback\n"
        "assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules)\n"
        "paceline.chief_only([callback])\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert "TypeError: chief_only: received [<" in ended.stderr
    assert "Wrap each callback" in ended.stderr
