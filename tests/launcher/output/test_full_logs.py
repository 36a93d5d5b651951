"""Log files on a disk that is full for a while."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.spec import WORKER, Task
from paceline.launcher.output.worker_logs import WorkerLogs

DISK_BYTES = 1 << 20
LIMIT_SECONDS = 120


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "paceline-test", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, timeout=LIMIT_SECONDS).returncode:
        pytest.skip("a small disk is a tmpfs, which only root may mount; CI runs as root")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True, timeout=LIMIT_SECONDS)


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


def test_a_full_disk_is_told_once_and_the_file_goes_on_when_there_is_room(small_disk: Path) -> None:
    """The first write that failed closed the file for good, without a word: a later traceback was missing."""
    said: list[str] = []
    filler = small_disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES // 2))
    with WorkerLogs(small_disk / "logs", said.append) as logs:
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
        assert (small_disk / "logs/latest/job_0.log").read_text() == "third generation\n"
        assert len(said) == 1, said


def test_what_is_left_out_is_marked(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(DISK_BYTES // 2))
    with WorkerLogs(small_disk / "logs", lambda _: None) as logs:
        logs.begin("ab12", 1, [worker()])
        file = logs.of(0)
        assert file is not None
        for lines in (["first"], ["x" * DISK_BYTES], ["lost", "lost, too"]):
            file.write(lines)
        filler.unlink()
        file.write(["Traceback", "ValueError: 3"])
    first, torn, *rest = (small_disk / "logs/latest/job_0.log").read_text().splitlines()
    assert first == "first"
    assert set(torn) == {"x"}
    assert rest == [
        "paceline: lines left out here, which could not be written: 3",
        "Traceback",
        "ValueError: 3",
    ]
