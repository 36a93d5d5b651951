"""What the launcher keeps for `--observe`: bounded, and what goes wrong is one line."""

import json
import sys
from pathlib import Path

import pytest

from paceline.events.head_events import GenerationBegan, Notice, RankEnded
from paceline.events.worker_events import EpochEnded, RecordsFailed, StepDone
from paceline.launcher.observation import observed
from small_disks import largest_file


def kept(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def refuse(line: str) -> None:
    raise AssertionError(line)


def test_of_frequent_events_a_bounded_number_is_kept(tmp_path: Path) -> None:
    with observed(tmp_path, "ab12", "train.py", refuse) as sink:
        sink(GenerationBegan(1, 2))
        for epoch in range(20_000):
            for rank in range(2):
                sink(StepDone(rank, epoch, epoch))
                sink(EpochEnded(rank, epoch, epoch, 1.0, {"loss": 1.0}))
        sink(Notice(("something",)))
        sink(RankEnded(1, -9))
    events = kept(tmp_path)
    epochs = [event["epoch"] for event in events if event["event"] == "EpochEnded"]
    assert epochs[:2048] == list(range(2048))
    assert len(epochs) < 10_000
    assert {event["event"] for event in events} == {"GenerationBegan", "EpochEnded", "RankEnded"}
    assert (tmp_path / "trace.json.gz").exists()


def test_the_timeline_is_made_also_where_the_job_raises(tmp_path: Path) -> None:
    with pytest.raises(KeyError), observed(tmp_path, "ab12", "train.py", refuse):
        raise KeyError
    assert (tmp_path / "trace.json.gz").exists()


def test_an_earlier_jobs_records_are_replaced_and_other_files_stay(tmp_path: Path) -> None:
    with observed(tmp_path, "ab12", "train.py", refuse) as sink:
        sink(GenerationBegan(1, 2))
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "own").write_text("no record")
    (tmp_path / "ranks" / "0001-1.steps").write_text("a record")
    for name in ("tensorboard/train", "tensorboard/rank 7"):
        (tmp_path / name).mkdir(parents=True)
    with observed(tmp_path, "cd34", "train.py", refuse) as sink:
        sink(RankEnded(0, 1))
    assert [event["event"] for event in kept(tmp_path)] == ["RankEnded"]
    assert [path.name for path in (tmp_path / "ranks").iterdir()] == ["own"]
    assert (tmp_path / "tensorboard/train").exists()
    assert not (tmp_path / "tensorboard/rank 7").exists()


@pytest.mark.parametrize("size", [0, 300], ids=["at once", "later"])
def test_a_full_disk_is_one_line(tmp_path: Path, size: int) -> None:
    told: list[str] = []
    with largest_file(size), observed(tmp_path, "ab12", "train.py", told.append) as sink:
        for epoch in range(100):
            sink(EpochEnded(0, epoch, epoch, 1.0, {"loss": 1.0}))
        sink(RecordsFailed(0, "No space left on device"))
        sink(RecordsFailed(1, "No space left on device"))
    assert len(told) == 1
    assert told[0].startswith("--observe ")
    assert told[0].endswith("[observe]")


def test_of_ranks_that_keep_nothing_any_more_the_first_is_one_line(tmp_path: Path) -> None:
    told: list[str] = []
    with observed(tmp_path, "ab12", "train.py", told.append) as sink:
        for rank in (3, 0, 1):
            sink(RecordsFailed(rank, "No space left on device"))
    assert len(told) == 1
    assert "rank 3" in told[0]
    assert "No space left on device" in told[0]


def test_a_missing_extra_is_one_line_with_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "paceline.report.tensorboard_files", raising=False)
    for name in ("tensorboard", "tensorboard.compat.proto.event_pb2"):
        monkeypatch.setitem(sys.modules, name, None)
    told: list[str] = []
    with observed(tmp_path, "ab12", "train.py", told.append) as sink:
        sink(GenerationBegan(1, 2))
    assert len(told) == 1
    assert "tensorboard is not installed. Fix: pip install 'paceline[observe]'" in told[0]
    assert (tmp_path / "trace.json.gz").exists()


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "file").write_text("")
    with observed(tmp_path / "file", "ab12", "train.py", told.append) as sink:
        sink(GenerationBegan(1, 2))
    assert len(told) == 1
