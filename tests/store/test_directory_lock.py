"""One job for each directory."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from made_snapshots import part, save, steps

from paceline.errors import ConfigurationError
from paceline.store.directory_lock import locked_for
from paceline.store.folder import Folder, Lock
from paceline.store.local_folder import LocalFolder
from paceline.store.manifest import SnapshotMeta
from paceline.store.snapshots import SnapshotStore
from paceline.store.staging import Writer

LIMIT_SECONDS = 120

FIRST, NEXT, OTHER = Writer("job-a", 1), Writer("job-a", 2), Writer("job-b", 1)


class Unlocked(LocalFolder):
    """A file system without locks."""

    def lock(self, path: str, text: str) -> Lock:
        found = super().lock(path, text)
        found.is_certain = False
        return found


def leftovers(folder: Folder) -> list[str]:
    return [name for name in folder.children("") if name.startswith(".tmp-")]


def begin(run: Path, writer: Writer) -> None:
    SnapshotStore(run, writer=writer).write_shard(10, 0, part(10))


def test_a_second_job_is_told_who_is_there(tmp_path: Path):
    with (
        SnapshotStore(tmp_path, writer=FIRST).hold(),
        pytest.raises(
            ConfigurationError, match=r"another job writes.*job-a.*directory of its own.*\[snapshot-locked\]"
        ),
        SnapshotStore(tmp_path, writer=OTHER).hold(wait_seconds=0),
    ):
        pass
    with SnapshotStore(tmp_path, writer=OTHER).hold(wait_seconds=0):
        pass


def test_a_holder_that_goes_is_waited_for(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    lock = folder.lock(".lock", "dying")
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        lock.release()

    with locked_for(folder, NEXT, 10, clock=lambda: 0.0, sleep=sleep):
        assert len(slept) == 1


def test_the_wait_ends(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    lock = folder.lock(".lock", "staying")
    times = iter([0.0, 4.0, 9.0, 11.0])
    with (
        pytest.raises(ConfigurationError, match="staying"),
        locked_for(folder, NEXT, 10, clock=lambda: next(times), sleep=lambda _: None),
    ):
        pass
    assert next(times, None) is None
    lock.release()


def test_an_earlier_generation_on_a_lost_host_is_waited_for_longer(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The lock of a client that is gone stays with a file server until its lease is over."""
    folder, now, slept = LocalFolder(tmp_path), [0.0], []
    with locked_for(folder, FIRST, 0):
        lock = folder.lock(".lock", "")
        assert json.loads(lock.holder)["generation"] == 1

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            now[0] += 30.0

        with (
            pytest.raises(ConfigurationError, match=r"an earlier generation of this job still holds.*job-a"),
            locked_for(folder, NEXT, 10, clock=lambda: now[0], sleep=sleep, own_job_seconds=100),
        ):
            pass
        assert len(slept) == 4
        assert caplog.text.count("still locked by an earlier generation of this job") == 1
        for stranger in (OTHER, FIRST):  # FIRST: another keeper of the same process, which would wait for itself
            with (
                pytest.raises(ConfigurationError, match="another job writes"),
                locked_for(folder, stranger, 0, clock=lambda: now[0], sleep=sleep),
            ):
                pass
        assert len(slept) == 4


def test_a_forked_child_does_not_keep_a_dead_chief_s_lock(tmp_path: Path):
    """The workers of a data loader live on for a moment."""
    code = (
        "import os, sys\n"
        "from paceline.store.snapshots import SnapshotStore, Writer\n"
        "with SnapshotStore(sys.argv[1], writer=Writer('job-a')).hold():\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    sys.stdin.read()\n"  # until the test lets it go
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE) as chief:
        assert chief.wait(LIMIT_SECONDS) == 0
        with SnapshotStore(tmp_path, writer=OTHER).hold(wait_seconds=0):
            pass


def test_the_directory_is_made(tmp_path: Path):
    with SnapshotStore(tmp_path / "a" / "b", writer=FIRST).hold() as lines:
        assert lines == ()
        assert (tmp_path / "a" / "b").is_dir()


def test_what_dead_jobs_left_behind_is_removed(tmp_path: Path):
    for writer in (FIRST, NEXT, OTHER):
        begin(tmp_path, writer)
    save(SnapshotStore(tmp_path, writer=OTHER), 5)
    with SnapshotStore(tmp_path, writer=NEXT).hold() as lines:
        assert len(lines) == 2
        assert all("unfinished snapshot" in line for line in lines)
    store = SnapshotStore(tmp_path, writer=NEXT)
    assert len(leftovers(LocalFolder(tmp_path))) == 1
    assert len(store.records(10)) == 1
    assert steps(store) == [5]


def test_without_locks_only_the_own_job_is_tidied(tmp_path: Path):
    for writer in (FIRST, OTHER):
        begin(tmp_path, writer)
    with locked_for(Unlocked(tmp_path), NEXT, 0) as holding:
        lines = holding.lines
        assert sum("removed" in line for line in lines) == 1
        assert sum("Delete" in line or "delete it" in line for line in lines) == 1
    assert [("job-b" in name) for name in leftovers(LocalFolder(tmp_path))] == [True]


def test_a_job_whose_name_ends_like_ours_is_another_one(tmp_path: Path):
    begin(tmp_path, Writer("x-job-a", 1))
    with locked_for(Unlocked(tmp_path), NEXT, 0) as holding:
        assert "stays" in holding.lines[0]


def test_a_directory_that_is_removed_and_made_again_is_locked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It was made again without the lock, so a second job was let in, and each deleted the other's snapshots."""
    run = tmp_path / "run"
    store, other = SnapshotStore(run, writer=FIRST), SnapshotStore(run, writer=OTHER)
    with store.hold():
        save(store, 10)
        shutil.rmtree(run)
        store.confirm_hold()  # as before each snapshot
        assert "created and locked again" in caplog.text
        save(store, 20)
        with pytest.raises(ConfigurationError, match="job-a"), other.hold(wait_seconds=0):
            pass
        shutil.rmtree(run)
        with other.hold(wait_seconds=0):  # it came first
            store.write_shard(30, 0, part(30))
            with pytest.raises(ConfigurationError, match=r"was removed while this job was running.*job-b"):
                store.commit(30, SnapshotMeta(0, 0, 1), store.records(30))
            save(other, 5)
        assert steps(store) == [5]


def test_what_another_rank_writes_late_makes_nothing_again(tmp_path: Path):
    """A part that came when the chief had given the snapshot up stayed on the full disk for good."""
    store = SnapshotStore(tmp_path, writer=FIRST)
    store.write_shard(10, 0, part(10))
    store.abandon(10)
    with pytest.raises(FileNotFoundError):
        store.write_shard(10, 1, part(10, 1))
    assert leftovers(LocalFolder(tmp_path)) == []


def test_only_this_generation_s_leftovers_are_swept(tmp_path: Path):
    store = SnapshotStore(tmp_path, writer=NEXT)
    for attempt in (1, 2, 3):
        store.write_shard(10, 0, part(10), attempt=attempt)
    begin(tmp_path, FIRST)
    store.clearing.sweep(NEXT, before_attempt=3)
    assert store.begun() == {3}
    store.clearing.sweep(NEXT)
    assert [("-g1-" in name) for name in leftovers(LocalFolder(tmp_path))] == [True]
