"""Files and directories that change places whole."""

import contextlib
import dataclasses
import errno
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.fit.files import atomic_write
from paceline.fit.files.atomic_write import Owner, replacing, this_process


def _put(path: Path, text: str) -> None:
    with replacing(str(path)) as unfinished:
        Path(unfinished).write_text(text)


def _put_directory(path: Path, contents: dict[str, str]) -> None:
    with replacing(str(path), makes_parents=True) as unfinished:
        Path(unfinished).mkdir()
        for name, text in contents.items():
            (Path(unfinished) / name).write_text(text)


def _contents(path: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() for entry in path.iterdir()}


def test_a_file_comes_whole_and_keeps_its_mode_and_name(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    _put(path, "one")
    path.chmod(0o640)
    with replacing(str(path)) as unfinished:
        assert Path(unfinished).name == "model.keras"
        Path(unfinished).write_text("tw")
        assert path.read_text() == "one"
        Path(unfinished).write_text("two")
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert _contents(tmp_path) == {"model.keras": "two"}


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    _put(path, "one")

    def fail() -> None:
        with replacing(str(path)) as unfinished:
            Path(unfinished).write_text("tw")
            raise OSError(errno.ENOSPC, "No space left on device", unfinished)

    with pytest.raises(OSError, match=re.escape(f"No space left on device: {str(path)!r}")):
        fail()
    assert _contents(tmp_path) == {"model.keras": "one"}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "model.keras").write_text("one")
    (tmp_path / "latest.keras").symlink_to("real/model.keras")
    _put(tmp_path / "latest.keras", "two")
    assert (tmp_path / "latest.keras").is_symlink()
    assert (tmp_path / "real" / "model.keras").read_text() == "two"


@pytest.mark.parametrize("path", ["missing/model.keras", "/dev/null", "/proc/model.keras"])
def test_where_nothing_can_be_beside_it_the_writer_gets_the_path_itself(tmp_path: Path, path: str) -> None:
    with replacing(str(tmp_path / path)) as unfinished:
        assert unfinished == str(tmp_path / path)


def test_several_files_end_with_the_one_that_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[str] = []
    original = atomic_write._put
    monkeypatch.setattr(atomic_write, "_put", lambda new, target: (put.append(target.name), original(new, target)))
    with replacing(str(tmp_path / "w.weights.json")) as unfinished:
        for name in ("a.json", "w_1.h5", "w_0.h5"):
            Path(unfinished).with_name(name).write_text(name)
    assert put == ["w_0.h5", "w_1.h5", "a.json"]


NAMES = st.dictionaries(st.sampled_from("abcd"), st.text("xyz", max_size=3))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(old=st.none() | NAMES, new=NAMES, exchanges=st.booleans())
def test_a_directory_gets_the_new_files_and_keeps_the_ones_it_does_not_have(
    tmp_path_factory: pytest.TempPathFactory, old: dict[str, str] | None, new: dict[str, str], exchanges: bool
) -> None:
    path = tmp_path_factory.mktemp("replacing") / "exported"
    if old is not None:
        path.mkdir()
        for name, text in old.items():
            (path / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        if not exchanges:
            patch.setattr(atomic_write, "_exchanged", lambda one, other: False)
        _put_directory(path, new)
    assert _contents(path) == {**(old or {}), **new}
    assert [entry.name for entry in path.parent.iterdir()] == ["exported"]
    shutil.rmtree(path.parent)


def test_a_directory_of_the_same_files_is_never_missing_and_never_mixed(tmp_path: Path) -> None:
    path, stop, seen, faults = tmp_path / "exported", threading.Event(), set(), []
    _put_directory(path, {"a": "0"})

    def read() -> None:
        while not stop.is_set():
            try:
                seen.add((path / "a").read_text())
            except OSError as fault:
                faults.append(fault)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, 201):
            _put_directory(path, {"a": str(number)})
    finally:
        stop.set()
        reader.join(60)
    assert not faults
    assert seen <= {str(number) for number in range(201)}


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(IsADirectoryError, match=re.escape(repr(str(tmp_path / "taken")))):
        _put(tmp_path / "taken", "text")
    with pytest.raises(FileExistsError, match=re.escape(repr(str(tmp_path / "file")))):
        _put_directory(tmp_path / "file", {})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "taken"]


def _left_by(owner: Owner, beside: str) -> Path:
    """What `owner` would have left beside the file that `beside` is written for."""
    directory = Path(beside).parent
    left = directory.with_name(directory.name.replace(str(this_process()), str(owner)))
    left.mkdir()
    (left / "model.keras").write_text("half")
    return left


def test_what_a_killed_writer_left_goes_with_the_next_save_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait(20)
    with replacing(str(tmp_path / "model.keras")) as living:
        left = _left_by(dataclasses.replace(this_process(), pid=dead.pid), living)
        _put(tmp_path / "model.keras", "one")
        assert not left.exists()
        Path(living).write_text("two")
    assert _contents(tmp_path) == {"model.keras": "two"}


def test_what_a_container_of_the_same_name_writes_stays_until_it_has_not_changed_for_a_day(tmp_path: Path) -> None:
    """Its process has a number that here is nobody's: it was taken for dead when a mark was host name and number."""
    dead = subprocess.Popen(["true"])
    dead.wait(20)
    here = this_process()
    elsewhere = dataclasses.replace(here, namespace=here.namespace + 1, pid=dead.pid)
    with replacing(str(tmp_path / "model.keras")) as own:
        left = _left_by(elsewhere, own)
        _put(tmp_path / "model.keras", "one")
        assert left.exists()
        for path in (left / "model.keras", left):
            os.utime(path, (0, 0))
        _put(tmp_path / "model.keras", "one")
        assert not left.exists()
        Path(own).write_text("two")
    assert _contents(tmp_path) == {"model.keras": "two"}


@pytest.mark.parametrize("is_ours", [True, False])
def test_whose_turn_it_is_puts_the_file(tmp_path: Path, is_ours: bool) -> None:
    _put(tmp_path / "model.keras", "one")
    seen = []

    @contextlib.contextmanager
    def turn() -> Iterator[bool]:
        seen.append((tmp_path / "model.keras").read_text())
        yield is_ours
        seen.append((tmp_path / "model.keras").read_text())

    with replacing(str(tmp_path / "model.keras"), turn=turn()) as unfinished:
        Path(unfinished).write_text("two")
    assert seen == ["one", "two" if is_ours else "one"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.keras"]


def test_left_overs_that_another_process_clears_away_hide_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one that had vanished ended the tidying."""
    here = this_process()
    with replacing(str(tmp_path / "model.keras")) as own:
        left = [_left_by(dataclasses.replace(here, namespace=here.namespace + number), own) for number in (1, 2, 3)]
        for directory in left:
            for path in (directory / "model.keras", directory):
                os.utime(path, (0, 0))

        def cleared(owner: Owner, *_: object) -> None:
            for directory in left:
                if str(owner) in directory.name and not gone:
                    gone.append(directory)
                    shutil.rmtree(directory)

        gone: list[Path] = []
        monkeypatch.setattr(atomic_write, "has_ended", cleared)
        _put(tmp_path / "model.keras", "one")
        assert not [directory for directory in left if directory.exists()]
        Path(own).write_text("two")


def test_a_directory_that_another_host_puts_there_meanwhile_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks on two hosts export to one folder on a shared disk: of two that saw none, one failed."""
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        monkeypatch.undo()
        _put_directory(tmp_path / "exported", {"a": "theirs", "b": "theirs"})
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    _put_directory(tmp_path / "exported", {"a": "ours"})
    assert _contents(tmp_path / "exported") == {"a": "ours", "b": "theirs"}
