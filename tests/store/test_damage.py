"""Whatever happens to the bytes of a snapshot is seen, and the one before is used."""

import os
import shutil
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_snapshots import JOB, save, steps

from paceline.store.folder import DamagedSnapshotError
from paceline.store.local_folder import LocalFolder
from paceline.store.manifest import DamagedSnapshot
from paceline.store.snapshots import SnapshotStore


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two snapshots, of steps 10 and 20."""
    root = tmp_path_factory.mktemp("whole")
    store = SnapshotStore(root / "run", writer=JOB)
    save(store, 10)
    save(store, 20)
    return root / "run"


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def files(run: Path) -> list[Path]:
    return sorted(path for path in (run / "step-000000000020").rglob("*") if path.is_file())


def assert_the_one_before_is_used(run: Path, reason: str) -> None:
    search = SnapshotStore(run).newest_intact()
    assert search.found is not None
    assert search.found.step == 10
    (line,) = search.skipped
    assert "step-000000000020 is not used" in line
    assert reason in line
    assert "\n" not in line


def test_every_file_is_covered(run: Path):
    assert [str(path.relative_to(run / "step-000000000020")) for path in files(run)] == [
        "manifest.json",
        "rank-00000/state.json",
        "rank-00000/tensors.safetensors",
        "rank-00001/state.json",
        "rank-00001/tensors.safetensors",
    ]


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.proof)])
def test_a_flipped_bit_in_any_byte_of_any_file(run: Path, stride: int):
    for path in files(run):
        data = path.read_bytes()
        for position in range(0, len(data), stride):
            flipped = bytearray(data)
            flipped[position] ^= 1 << position % 8
            path.write_bytes(flipped)
            assert_the_one_before_is_used(run, "")
        path.write_bytes(data)
    assert SnapshotStore(run).newest_intact().found.step == 20


@given(st.data())
def test_any_change_of_any_file(whole: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    """Cut, grown, overwritten or emptied anywhere."""
    run = Path(shutil.copytree(whole, tmp_path_factory.mktemp("any") / "run"))
    path = data.draw(st.sampled_from(files(run)))
    before = path.read_bytes()
    begin = data.draw(st.integers(0, len(before)))
    end = data.draw(st.integers(begin, len(before)))
    after = before[:begin] + data.draw(st.binary(max_size=20)) + before[end:]
    path.write_bytes(after)
    if after == before:
        assert SnapshotStore(run).newest_intact().found.step == 20
    else:
        assert_the_one_before_is_used(run, "")


@pytest.mark.parametrize("number", range(5))
def test_a_missing_file(run: Path, number: int):
    path = files(run)[number]
    path.unlink()
    assert_the_one_before_is_used(run, f"{path.relative_to(run)} is missing")


@pytest.mark.parametrize("number", range(5))
def test_a_directory_or_a_pipe_in_the_place_of_a_file(run: Path, number: int):
    path = files(run)[number]
    path.unlink()
    path.mkdir()
    assert_the_one_before_is_used(run, "missing")
    path.rmdir()
    os.mkfifo(path)
    assert_the_one_before_is_used(run, "missing")


def test_a_reader_refuses_damage_at_each_file(run: Path):
    store = SnapshotStore(run)
    info = store.find("step-000000000020")
    for path in files(run)[1:]:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    reader = store.open(info)
    for read in (lambda: reader.state(0), lambda: reader.tensors(1)):
        with pytest.raises(DamagedSnapshotError, match="does not match its checksum"):
            read()
    assert len(store.verify(info)) == 4


def test_a_huge_manifest_is_not_read(run: Path):
    with (run / "step-000000000020" / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)  # a hole: takes no place on the disk
    assert_the_one_before_is_used(run, "expected at most")


def test_damaged_ones_are_listed_with_their_reason(run: Path):
    files(run)[-1].unlink()
    newest, older = SnapshotStore(run).entries()
    assert isinstance(newest, DamagedSnapshot)
    assert "is missing" in str(newest.fault)
    assert older.step == 10


def test_with_all_damaged_none_is_found(run: Path):
    shutil.rmtree(run / "step-000000000010" / "rank-00001")
    files(run)[0].write_bytes(b"")
    search = SnapshotStore(run).newest_intact()
    assert search.found is None
    assert len(search.skipped) == 2


def test_a_disk_that_fails_is_no_reason_to_begin_anew(run: Path, monkeypatch: pytest.MonkeyPatch):
    store = SnapshotStore(run)

    def fail(path: str) -> None:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(store._folder, "reader", fail)
    with pytest.raises(OSError, match="no snapshot could be read"):
        store.newest_intact()


def test_pruning_never_deletes_the_only_intact_one(run: Path):
    """The damage is in the contents: only reading them shows it."""
    path = files(run)[-1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    store = SnapshotStore(run)
    assert store.prune(1).removed == ()
    assert steps(store) == [20, 10]


def test_a_copied_snapshot_under_another_step_is_damage(run: Path):
    shutil.copytree(run / "step-000000000020", run / "step-000000000030")
    search = SnapshotStore(run).newest_intact()
    assert search.found.step == 20
    assert "the directory says step 30" in search.skipped[0]


def test_a_snapshot_that_somebody_deletes_while_it_is_looked_at_is_no_disk_that_fails(run: Path):
    """It was there when its size was asked for: the job did not begin at all, for it might have been whole."""

    class Deleting(LocalFolder):
        def reader(self, path: str) -> BinaryIO:
            if path.endswith("tensors.safetensors"):
                shutil.rmtree(run / path.partition("/")[0])
            return super().reader(path)

    search = SnapshotStore(run, around=lambda _: Deleting(run)).newest_intact()
    assert search.found is None
    assert len(search.skipped) == 2
    assert all("tensors.safetensors is missing" in line for line in search.skipped)
