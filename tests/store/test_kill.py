"""`kill -9` of a process that writes: the snapshot before or the new one is found, never half of one."""

import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy
import pytest
from made_snapshots import save

from paceline.store.snapshots import SnapshotStore, Writer

pytestmark = pytest.mark.processes

LIMIT_SECONDS = 60
PROGRAM = Path(__file__).with_name("snapshot_writer.py")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(2, 6))])
def test_at_a_random_moment(tmp_path: Path, seed: int):
    """Also in the middle of writing four megabytes."""
    chance = random.Random(seed)
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), str(tmp_path / "run"), "random"], stdout=subprocess.PIPE, text=True
    ) as process:
        deadline = threading.Timer(LIMIT_SECONDS, process.kill)
        deadline.start()
        try:
            assert process.stdout is not None
            announced = [int(process.stdout.readline()) for _ in range(chance.randint(1, 4))]
            with pytest.raises(subprocess.TimeoutExpired):  # so long it goes on
                process.wait(chance.uniform(0.0, 0.05))
            process.kill()
            announced += [int(line) for line in process.stdout.read().split()]
        finally:
            deadline.cancel()
            process.kill()
    store = SnapshotStore(tmp_path / "run", writer=Writer("job-b"))
    search = store.newest_intact()
    assert search.skipped == ()
    assert search.found is not None
    assert search.found.step - announced[-1] in (0, 1)
    reader = store.open(search.found)
    assert reader.state(0) == {"step": search.found.step}
    assert (reader.tensors(0)["w"] == numpy.uint8(search.found.step % 256)).all()
    with store.hold(wait_seconds=0):  # the kernel has given the lock back
        assert not [*(tmp_path / "run").glob(".tmp-*")]


def test_at_every_event_of_the_file_system(tmp_path: Path):
    """Before each opening, making, renaming and deleting of a file or directory of a commit with retention."""
    first = SnapshotStore(tmp_path / "run", keep=2, writer=Writer("job-a", 0))
    save(first, 1)
    save(first, 2)
    finished = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "run"), "sweep"],
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_SECONDS,
    )
    assert finished.returncode == 0, finished.stderr
    rows = [[int(word) for word in line.split()] for line in finished.stdout.splitlines()]
    assert len(rows) > 25
    newest = 2
    for number, step, num_damaged in rows:
        assert step in (newest, newest + 1), f"killed at event {number}"
        assert num_damaged == 0, f"killed at event {number}"
        newest = step
    assert newest > 3, "some were killed after the renaming, during retention"
    with SnapshotStore(tmp_path / "run", writer=Writer("job-b")).hold(wait_seconds=0):
        assert not [*(tmp_path / "run").glob(".tmp-*")]
