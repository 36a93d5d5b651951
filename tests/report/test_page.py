"""The page of a job: all that is known, small, and nothing that is loaded; and the curves for TensorBoard."""

import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.tensorflow_stub.errors import OutOfRangeError
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New
from tests.report.made_jobs import MadeJob, folder_bytes
from typer.testing import CliRunner

from paceline.cli.verbs import app
from paceline.errors import EXIT_CONFIGURATION
from paceline.events.head_events import RankEnded, Recovered
from paceline.report.advice import ADVICE
from paceline.report.making import make_timeline
from paceline.report.page import page_of

DOCS = Path(__file__).parents[2] / "docs"
LOADS = re.compile(r"""<(script|link|img|iframe|object)\b|@import|(src|href)\s*=\s*["'](?!#|data:)|url\((?!["']?#)""")


@pytest.fixture
def made(tmp_path: Path) -> MadeJob:
    made = MadeJob(tmp_path, ["a", "a", "b"], {"b": lambda _: 3_000_000_000})
    made.measure()
    for epoch in range(5):
        made.steps(60, slow=2)
        made.write()
        made.end_epoch(epoch)
    return made


def test_the_page_has_everything_and_loads_nothing(made: MadeJob) -> None:
    made.tell(RankEnded(1, -9, ""))
    made.tell(Recovered(2, 100, 3, 4.5, "rank 1 was killed"))
    page = page_of(made.end())
    assert not LOADS.search(page)
    for text in (
        "300, 100 a second",
        "input: 30 % of each step",
        "waiting for rank 1: 20 % of each step",
        "worker 1 killed (SIGKILL)",
        "training goes on from step 100: 3 steps and 4.5 s lost",
        "<td>±0.",
        "Time by rank",
        ">rank 2<",
        ">validation<",
    ):
        assert text in page, text
    assert page.count("<svg") == 4


def test_what_users_have_named_is_text_on_the_page(made: MadeJob) -> None:
    made.tell(RankEnded(1, 1, "ValueError: <script>alert(1)</script> $x_"))
    job = made.end()
    for event in job.events:
        if event["event"] == "EpochEnded":
            event["logs"] = {"<b>$a^": 1.0}
    page = page_of(job)
    assert "<script" not in page
    assert "<b>$a" not in page


def test_from_sixteen_ranks_on_hosts_are_shown(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, ["a"] * 8 + ["b"] * 8, {"b": lambda _: 0})
    made.measure()
    made.steps(30, slow=9)
    page = page_of(made.end())
    assert "Time by host" in page
    assert ">host b<" in page
    assert ">rank 9<" not in page


def test_a_job_of_which_nothing_but_its_beginning_is_known_has_a_page(tmp_path: Path) -> None:
    made = MadeJob(tmp_path, ["a"])
    made.sink.__exit__(None, None, None)
    ran = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert "had not ended" in (tmp_path / "report.html").read_text()


def test_a_long_job_has_a_small_page_and_a_small_folder(made: MadeJob) -> None:
    for epoch in range(5, 2000):
        made.end_epoch(epoch)
        if epoch % 5 == 0:
            made.steps(3)
            made.write(is_last=True)
    made.end()
    ran = CliRunner().invoke(app, ["report", str(made.folder)])
    assert ran.exit_code == 0, ran.output
    assert (made.folder / "report.html").stat().st_size < 2_000_000
    assert folder_bytes(made.folder) < 10_000_000


def points_of(file: Path) -> dict[str, list[tuple[int, float]]]:
    """As TensorBoard reads them where there is no TensorFlow; its own reader would import it here."""
    reader = PyRecordReader_New(str(file), 0)
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    while True:
        try:
            reader.GetNext()
        except OutOfRangeError:
            return points
        event = Event.FromString(reader.record())
        for value in event.summary.value:
            points[value.tag].append((event.step, value.simple_value))


def test_tensorboard_reads_a_run_of_each_rank(made: MadeJob) -> None:
    users = made.folder / "tensorboard" / "train"
    users.mkdir(parents=True)
    assert make_timeline(made.folder, made.end()) == []
    assert make_timeline(made.folder) == []
    assert users.is_dir()
    for rank in range(3):
        run = made.folder / "tensorboard" / f"rank {rank}"
        [file] = run.iterdir()
        points = points_of(file)
        assert [step for step, _ in points["step/step ms"]] == list(range(1, 301))
        assert all(2 < value < 20 for _, value in points["step/step ms"])
        assert all(0.1 < value < 1 for _, value in points["step/input ms"])
        waited = sum(value for _, value in points["step/waiting ms"])
        assert (waited < 2) == (rank == 2), "the others wait for rank 2"


def test_without_a_library_the_rest_is_made_and_one_sentence_says_what_to_type(
    made: MadeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = made.end()
    for name in ("paceline.report.tensorboard_files", "paceline.report.page", "paceline.report.charts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("matplotlib", "matplotlib.figure", "tensorboard", "tensorboard.summary.writer.record_writer"):
        monkeypatch.setitem(sys.modules, name, None)
    [line] = make_timeline(made.folder, job)
    assert "pip install 'paceline[observe]'" in line
    assert (made.folder / "trace.json.gz").exists()
    ran = CliRunner().invoke(app, ["report", str(made.folder)])
    assert ran.exit_code == 1
    assert "Fix: pip install 'paceline[observe]'" in ran.output


def test_records_on_other_disks_are_named_with_what_to_do(made: MadeJob) -> None:
    made.end()
    for path in (made.folder / "ranks").glob("0002-*"):
        path.rename(made.folder / path.name)
    [line] = make_timeline(made.folder)
    assert "of ranks 2 (host b)" in line
    assert f"`paceline report {made.folder}`" in line
    for path in made.folder.glob("0002-*"):
        path.rename(made.folder / "ranks" / path.name)
    assert make_timeline(made.folder) == []


@pytest.mark.parametrize("name", ["nothing", "empty", "file"])
def test_a_folder_without_records_is_one_sentence_with_the_fix(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    ran = CliRunner().invoke(app, ["report", str(tmp_path / name)])
    assert ran.exit_code == EXIT_CONFIGURATION
    [line] = ran.output.splitlines()
    assert "has no records of a job. Fix: name the folder" in line
    assert line.endswith("[no-records]")


def test_the_page_advises_what_the_documentation_advises() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in (DOCS / "observe.md").read_text().splitlines()
        if line.startswith("|")
    ]
    table = {row[0].removesuffix(" for rank N, for each other"): row[2] for row in rows if len(row) == 3}
    for word, advice in ADVICE.items():
        assert re.sub(r" \(\[data\]\(data.md\)\)", "", table[word]) == advice
