"""One job for each directory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_snapshots import part, save, steps

from paceline.errors import ConfigurationError
from paceline.store.folder import Folder, Lock
from paceline.store.holding import held
from paceline.store.local_folder import LocalFolder
from paceline.store.snapshots import SnapshotStore
from paceline.store.staging import Writer

LIMIT_SECONDS = 30

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
    SnapshotStore(run, writer=writer).write_part(10, 0, part(10))


def test_a_second_job_is_told_who_is_there(tmp_path: Path):
    with (
        SnapshotStore(tmp_path, writer=FIRST).hold(),
        pytest.raises(ConfigurationError, match=r"another job writes.*job-a.*directory of its own"),
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

    with held(folder, NEXT, 10, clock=lambda: 0.0, sleep=sleep):
        assert len(slept) == 1


def test_the_wait_ends(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    lock = folder.lock(".lock", "staying")
    times = iter([0.0, 4.0, 9.0, 11.0])
    with (
        pytest.raises(ConfigurationError, match="staying"),
        held(folder, NEXT, 10, clock=lambda: next(times), sleep=lambda _: None),
    ):
        pass
    assert next(times, None) is None
    lock.release()


def test_an_earlier_generation_on_a_lost_host_is_waited_for_longer(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """The lock of a client that is gone stays with a file server until its lease is over."""
    folder, now, slept = LocalFolder(tmp_path), [0.0], []
    with held(folder, FIRST, 0):
        lock = folder.lock(".lock", "")
        assert json.loads(lock.holder)["generation"] == 1

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            now[0] += 30.0

        with (
            pytest.raises(ConfigurationError, match=r"an earlier generation of this job still holds.*job-a"),
            held(folder, NEXT, 10, clock=lambda: now[0], sleep=sleep, own_job_seconds=100),
        ):
            pass
        assert len(slept) == 4
        assert caplog.text.count("still locked by an earlier generation of this job") == 1
        for stranger in (OTHER, FIRST):  # FIRST: another keeper of the same process, which would wait for itself
            with (
                pytest.raises(ConfigurationError, match="another job writes"),
                held(folder, stranger, 0, clock=lambda: now[0], sleep=sleep),
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
        assert all("left behind" in line for line in lines)
    store = SnapshotStore(tmp_path, writer=NEXT)
    assert len(leftovers(LocalFolder(tmp_path))) == 1
    assert len(store.records(10)) == 1
    assert steps(store) == [5]


def test_without_locks_only_the_own_job_is_tidied(tmp_path: Path):
    for writer in (FIRST, OTHER):
        begin(tmp_path, writer)
    with held(Unlocked(tmp_path), NEXT, 0) as lines:
        assert sum("removed" in line for line in lines) == 1
        assert sum("Delete" in line or "delete it" in line for line in lines) == 1
    assert [("job-b" in name) for name in leftovers(LocalFolder(tmp_path))] == [True]


def test_a_job_whose_name_ends_like_ours_is_another_one(tmp_path: Path):
    begin(tmp_path, Writer("x-job-a", 1))
    with held(Unlocked(tmp_path), NEXT, 0) as lines:
        assert "stays" in lines[0]
