"""The socket of a job, and who asks there."""

import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.cluster.job_directory import job_directory
from paceline.launcher.live import asking, status_socket
from paceline.launcher.live.asking import NoJobError, SilentJobError, ask, directory_of, own_directories
from paceline.launcher.live.job_state import JobState
from paceline.launcher.live.status_socket import NAME, StatusSocket
from paceline.wire.codec import encode

JOBS = ("ab120000000000000", "ab340000000000000")
OTHER_USER = 4242


def answer_of(job_id: str) -> bytes:
    return encode(JobState(job_id, "train.py", "a", 9, max_restarts=0, began_at=0.0).status(1.0))


def refuse(line: str) -> None:
    raise AssertionError(line)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go: a path that is longer than those of sockets may be."""
    place = tmp_path / ("long" * 30)
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.fixture
def directory(folder: Path) -> Iterator[Path]:
    place = job_directory(JOBS[0])
    with StatusSocket(place, lambda: answer_of(JOBS[0]), refuse):
        yield place


def test_the_owner_alone_may_ask(directory: Path) -> None:
    assert ask(directory).job_id == JOBS[0]
    assert stat.S_IMODE((directory / NAME).lstat().st_mode) == 0o600
    assert stat.S_IMODE(directory.lstat().st_mode) == 0o700


def test_nothing_is_left(folder: Path) -> None:
    with StatusSocket(job_directory(JOBS[0]), lambda: b"", refuse):
        assert own_directories() == [job_directory(JOBS[0])]
    assert list(folder.iterdir()) == []


def test_the_end_of_a_job_waits_for_nobody(folder: Path) -> None:
    """Each `paceline run` ended up to half a second late."""
    seconds = []
    for _ in range(5):
        with StatusSocket(place := job_directory(JOBS[0]), lambda: answer_of(JOBS[0]), refuse):
            ask(place)  # the thread has answered, and waits for the next one
            began = time.monotonic()
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 0.05, seconds


def test_files_of_ranks_stay(folder: Path) -> None:
    with StatusSocket(place := job_directory(JOBS[0]), lambda: b"", refuse):
        (place / "lock").touch()
    assert [path.name for path in place.iterdir()] == ["lock"]


def test_a_socket_that_was_removed_comes_back(directory: Path) -> None:
    """The directory of a job is removed at the end of each generation, and the job could not be asked any more."""
    (directory / NAME).unlink()
    directory.rmdir()
    give_up_at = time.monotonic() + 30
    while not (directory / NAME).exists() and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert ask(directory).job_id == JOBS[0]


def test_a_job_whose_directory_another_one_holds_runs_without(folder: Path) -> None:
    told: list[str] = []
    job_directory(JOBS[0]).mkdir(mode=0o755)
    job_directory(JOBS[0]).chmod(0o755)
    with StatusSocket(job_directory(JOBS[0]), lambda: b"", told.append):
        pass
    (line,) = told
    assert line.startswith("`paceline status` cannot ask this job, which continues: ")
    assert line.endswith("[job-directory]")


def test_strangers_get_no_answer(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_socket, "is_own", lambda connected: False)
    with pytest.raises(NoJobError, match="gave no answer"):
        ask(directory)


def test_strangers_are_not_believed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "is_own", lambda connected: False)
    with pytest.raises(NoJobError, match="of another user"):
        ask(directory)


def test_who_does_not_read_holds_nobody_up(directory: Path) -> None:
    with status_socket.name_in(directory) as name, socket.socket(socket.AF_UNIX) as idle:
        idle.connect(name)
        assert ask(directory).job_id == JOBS[0]


def test_several_ask_at_once(directory: Path) -> None:
    told: list[str] = []
    threads = [threading.Thread(target=lambda: told.append(ask(directory).job_id)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert told == [JOBS[0]] * 20


@pytest.fixture
def left_behind(folder: Path) -> Path:
    """What a launcher that was killed leaves if nobody cleans up."""
    place = job_directory(JOBS[0])
    place.mkdir(mode=0o700)
    with status_socket.name_in(place) as name, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
    return place


def test_a_dead_jobs_socket(left_behind: Path) -> None:
    with pytest.raises(NoJobError, match=r"is over: its launcher ended without cleaning up\. Fix: .*\[no-job\]$"):
        ask(left_behind)
    with StatusSocket(job_directory(JOBS[1]), lambda: answer_of(JOBS[1]), refuse):
        assert ask(job_directory(JOBS[1])).job_id == JOBS[1]


def test_a_launcher_that_is_stopped(left_behind: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ANSWER_SECONDS", 0.1)
    (left_behind / NAME).unlink()
    with status_socket.name_in(left_behind) as name, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        with pytest.raises(SilentJobError, match=r"does not answer within 0\.1 s.*Ctrl-Z"):
            ask(left_behind)


def test_a_job_of_another_version(folder: Path) -> None:
    told, place = b'{"job_id":"x","news":1}', job_directory(JOBS[0])
    with StatusSocket(place, lambda: told, refuse), pytest.raises(SilentJobError, match="another version of Paceline"):
        ask(place)


def _nothing(place: Path) -> None:
    place.rmdir()


def _file(place: Path) -> None:
    place.rmdir()
    place.touch()


def _link(place: Path) -> None:
    place.rename(place.with_name("elsewhere"))
    place.symlink_to("elsewhere")


def _open(place: Path) -> None:
    with status_socket.name_in(place) as name, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
    place.chmod(0o755)


def _others(place: Path) -> None:
    _open(place)
    place.chmod(0o700)
    os.chown(place, OTHER_USER, -1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda place: None, "is not the directory of a job that runs"),
        (_nothing, "is not the directory of a job that runs"),
        (_file, "is not the directory of a job that runs"),
        (_link, "is not the directory of a job that runs"),
        (_open, "is open to other users"),
        pytest.param(
            _others,
            f"of a job of user {OTHER_USER}",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to another user"),
        ),
    ],
)
def test_a_folder_that_is_none(folder: Path, make: Callable[[Path], None], words: str) -> None:
    place = job_directory(JOBS[0])
    place.mkdir(mode=0o700)
    make(place)
    with pytest.raises(NoJobError, match=rf"{words}.*\. Fix: .*\. \[no-job\]$") as caught:
        ask(place)
    assert "\n" not in str(caught.value)
    assert own_directories() == []


def test_which_job_a_user_means(directory: Path) -> None:
    with StatusSocket(other := job_directory(JOBS[1]), lambda: answer_of(JOBS[1]), refuse):
        assert directory_of("ab12") == directory_of(JOBS[0]) == directory_of(str(directory)) == directory
        assert directory_of("ab3") == other
        with pytest.raises(NoJobError, match="2 jobs have an id that begins with ab"):
            directory_of("ab")
        for none in ("cd", "", "*", "ab12\n", "é" * 99):
            with pytest.raises(NoJobError, match=r"^no job .* of yours runs on this host\. Fix: .*\[no-job\]$"):
                directory_of(none)
