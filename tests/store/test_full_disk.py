"""A full disk, and a directory that goes away: the old snapshot stays, the next try succeeds."""

import contextlib
import errno
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from made_snapshots import JOB, part, save

from paceline.errors import ConfigurationError
from paceline.store.background import BackgroundWriter, Outcome
from paceline.store.manifest import MANIFEST_FILE, SnapshotMeta
from paceline.store.shards import TENSORS_FILE, Shard, ShardRecord, rank_folder
from paceline.store.snapshots import SnapshotStore, Writer

LIMIT_SECONDS = 120
DISK_BYTES = 1 << 20
LARGE = Shard({"w": numpy.ones(2 * DISK_BYTES, "uint8")}, {})


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[int]:
    """Within the block, `directory` has no place for `LARGE`; gives the error that this brings.

    A real file system where this process may mount one, else the limit that the kernel puts on the size of files.
    """
    directory.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "paceline-test", str(directory)]
    if not subprocess.run(mount, capture_output=True, timeout=LIMIT_SECONDS).returncode:
        try:
            yield errno.ENOSPC
        finally:
            subprocess.run(["umount", "-l", str(directory)], check=True, timeout=LIMIT_SECONDS)
        return
    before, on_signal = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, before[1]))
    try:
        yield errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, on_signal)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[SnapshotStore, int]]:
    with small_disk(tmp_path / "run") as number:
        yield SnapshotStore(tmp_path / "run", writer=JOB), number


def test_a_full_disk_leaves_the_old_snapshot_and_the_next_try_succeeds(full: tuple[SnapshotStore, int]):
    store, number = full
    save(store, 10)
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the number is looked at below
        store.write_shard(20, 0, LARGE)
    assert raised.value.errno == number
    assert store.records(20) == ()
    assert store.newest_intact().found.step == 10
    store.abandon(20)
    save(store, 20)
    assert store.newest_intact().found.step == 20


def test_a_disk_that_is_full_to_the_last_byte_commits_nothing(tmp_path: Path):
    """Parts fit, the manifest does not."""
    with small_disk(tmp_path / "run") as number:
        store = SnapshotStore(tmp_path / "run", writer=JOB)
        save(store, 10)
        records = [store.write_shard(20, rank, part(20, rank)) for rank in range(2)]
        meta = SnapshotMeta(0, 0, 2, {"hosts": "h" * (DISK_BYTES // 2)})
        with _no_room_left(tmp_path / "run", number), pytest.raises(OSError) as raised:  # noqa: PT011
            store.commit(20, meta, records)
        assert raised.value.errno == number
        assert [entry.step for entry in store.entries()] == [10]


@contextlib.contextmanager
def _no_room_left(directory: Path, number: int) -> Iterator[None]:
    if number == errno.EFBIG:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return
    with (directory / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    yield
    (directory / "filler").unlink()


def test_the_background_writer_tells_a_full_disk_and_goes_on(full: tuple[SnapshotStore, int]):
    store, number = full
    told: list[tuple[int, Outcome[ShardRecord]]] = []

    def write(job: tuple[int, Shard]) -> ShardRecord:
        return store.write_shard(job[0], 0, job[1])

    with BackgroundWriter(write, lambda job, outcome: told.append((job[0], outcome))) as writer:
        writer.submit((10, LARGE))
        assert writer.flush(LIMIT_SECONDS)
        store.abandon(10)
        writer.submit((20, part(20)))
        assert writer.flush(LIMIT_SECONDS)
    (_, failed), (_, good) = told
    assert isinstance(failed.error, OSError)
    assert failed.error.errno == number
    assert good.error is None


def test_a_full_disk_can_be_held(full: tuple[SnapshotStore, int], tmp_path: Path):
    """Training begins, and the snapshots that are there can be gone on from."""
    store, number = full
    save(store, 10)
    with store.hold():  # the lock's file is there from an earlier start
        pass
    with _no_room_left(tmp_path / "run", number), store.hold():
        assert store.newest_intact().found.step == 10


def damage(directory: Path) -> None:
    path = directory / rank_folder(0) / TENSORS_FILE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_the_oldest_make_room_while_an_intact_newer_one_stays(full: tuple[SnapshotStore, int], tmp_path: Path):
    """With room for two and three to keep, nothing was ever written again: the oldest went after a commit only."""
    if full[1] != errno.ENOSPC:
        pytest.skip("needs a real file system: a limit on the size of files leaves the disk as it is")
    store = SnapshotStore(tmp_path / "run", keep=3, writer=JOB)
    large = Shard({"w": numpy.ones(DISK_BYTES // 3, "uint8")}, {})

    def save_large(step: int) -> int:
        return store.commit(step, SnapshotMeta(0, 0, 1), [store.write_shard(step, 0, large)]).disk_bytes

    disk_bytes = save_large(10)
    assert store.clearing.make_room(disk_bytes) == ()
    save_large(20)
    assert store.clearing.make_room(3 * DISK_BYTES) == (), "the older one went, although its room was not enough"
    for step in (30, 40):
        with pytest.raises(OSError, match="No space left"):
            save_large(step)
        store.abandon(step)
        assert store.clearing.make_room(disk_bytes) == (f"step-{step - 20:012d}",)
        save_large(step)
    damage(tmp_path / "run" / "step-000000000040")
    assert store.clearing.make_room(disk_bytes) == (), "the older one is the only intact one"
    assert store.clearing.make_room(0, is_full=True) == ()
    assert [entry.step for entry in store.entries()] == [40, 30]
    (tmp_path / "run" / "step-000000000040" / MANIFEST_FILE).unlink()
    save(store, 50)
    assert store.clearing.make_room(2 * disk_bytes) == ("step-000000000030", "step-000000000040"), "damaged ones count"


def test_a_directory_that_has_become_read_only_can_be_gone_on_from(full: tuple[SnapshotStore, int], tmp_path: Path):
    """Its lock's file could not be opened, and the job ended although an intact snapshot could be read."""
    store, number = full
    if number != errno.ENOSPC:
        pytest.skip("needs a file system to mount")
    with store.hold():
        save(store, 10)
    subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "run")], check=True, timeout=LIMIT_SECONDS)
    with store.hold():
        assert store.newest_intact().found.step == 10
        with pytest.raises(OSError, match="Read-only"):
            store.write_shard(20, 0, part(20))
        store.abandon(20)
        subprocess.run(["mount", "-o", "remount,rw", str(tmp_path / "run")], check=True, timeout=LIMIT_SECONDS)
        store.confirm_hold()
        with (
            pytest.raises(ConfigurationError),
            SnapshotStore(tmp_path / "run", writer=Writer("b")).hold(wait_seconds=0),
        ):
            pass


def test_a_directory_removed_under_the_writer(tmp_path: Path):
    store = SnapshotStore(tmp_path / "run", writer=JOB)
    records = [store.write_shard(10, rank, part(10, rank)) for rank in range(2)]
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(FileNotFoundError):
        store.commit(10, SnapshotMeta(0, 0, 2), records)
    store.abandon(10)
    save(store, 20)
    assert store.newest_intact().found.step == 20


def test_a_mount_that_has_gone_is_not_replaced_by_the_host_s_own_disk(tmp_path: Path):
    store = SnapshotStore(tmp_path / "mount" / "run", writer=JOB)
    with pytest.raises(FileNotFoundError):
        store.write_shard(10, 0, part(10))
    assert not [*tmp_path.iterdir()]
