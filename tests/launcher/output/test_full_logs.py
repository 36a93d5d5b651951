"""Log files on a disk that is full for a while."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.launcher.output.worker_logs import WorkerLogs
from small_disks import small_disk

DISK_BYTES = 1 << 20
LIMIT_SECONDS = 120


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, DISK_BYTES) as disk:
        yield disk


def worker(generation: int = 1) -> WorkerIdentity:
    return WorkerIdentity(
        task=Task(WORKER, 0),
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        generation=generation,
        job_id="ab12",
        seed=0,
    )


def test_a_full_disk_is_told_once_and_the_file_goes_on_when_there_is_room(disk: Path) -> None:
    """The first write that failed closed the file for good, without a word: a later traceback was missing."""
    said: list[str] = []
    filler = disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES // 2))
    with WorkerLogs(disk / "logs", said.append) as logs:
        logs.begin("ab12", 1, [worker()])
        file = logs.of(0)
        assert file is not None
        file.write(["first"])
        file.write(["x" * DISK_BYTES])  # a part of which is written
        file.write(["lost", "lost, too"])
        assert len(said) == 1, said
        assert "No space left on device" in said[0]
        logs.begin("ab12", 2, [worker(2)])  # no room for anything
        filler.unlink()
        logs.begin("ab12", 3, [worker(3)])
        logs.of(0).write(["third generation"])
        assert (disk / "logs/latest/job_0.log").read_text() == "third generation\n"
        assert len(said) == 1, said


def test_what_is_left_out_is_marked(disk: Path) -> None:
    filler = disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES // 2))
    with WorkerLogs(disk / "logs", lambda _: None) as logs:
        logs.begin("ab12", 1, [worker()])
        file = logs.of(0)
        assert file is not None
        for lines in (["first"], ["x" * DISK_BYTES], ["lost", "lost, too"]):
            file.write(lines)
        filler.unlink()
        file.write(["Traceback", "ValueError: 3"])
    first, torn, *rest = (disk / "logs/latest/job_0.log").read_text().splitlines()
    assert first == "first"
    assert set(torn) == {"x"}
    assert rest == [
        "paceline: lines left out here, which could not be written: 3",
        "Traceback",
        "ValueError: 3",
    ]
