"""Marks of processes: no two alike, and never taken for dead while alive."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.fit.files import atomic_write
from paceline.fit.files.atomic_write import PATTERN, Owner, has_ended, parse_owner, started_at, this_process

OWNERS = st.builds(
    Owner,
    kernel=st.text("0123456789abcdef", min_size=1, max_size=32),
    namespace=st.integers(0, 2**32),
    pid=st.integers(1, 2**22),
    started=st.integers(0, 2**40),
)


@given(OWNERS)
def test_a_mark_can_be_read_again(owner: Owner) -> None:
    assert re.fullmatch(PATTERN, str(owner))
    assert parse_owner(str(owner)) == owner


def test_this_process_is_there_and_one_that_has_ended_is_not() -> None:
    here = this_process()
    assert re.fullmatch(PATTERN, str(here))
    assert has_ended(here, here, started_at) is False
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = started_at(child.pid)
    assert started is not None
    mark = Owner(here.kernel, here.namespace, child.pid, started)
    assert has_ended(mark, here, started_at) is False
    child.communicate(b"\n", timeout=20)
    assert has_ended(mark, here, started_at) is True


@given(owner=OWNERS, here=OWNERS, found=st.none() | st.integers(0, 3))
def test_nothing_is_said_of_processes_that_cannot_be_asked(owner: Owner, here: Owner, found: int | None) -> None:
    """The same number in another container, or on another machine, is another process."""
    can_be_asked = (owner.kernel, owner.namespace) == (here.kernel, here.namespace)
    assert (has_ended(owner, here, lambda pid: found) is None) == (not can_be_asked)


@pytest.mark.parametrize(
    ("found", "ended"), [(None, True), (500, False), (501, True), (0, False)], ids=["gone", "it", "another", "unknown"]
)
def test_a_number_that_was_given_again_is_not_the_owner(found: int | None, ended: bool) -> None:
    here = Owner("kernel", 1, 7, 400)
    assert has_ended(Owner("kernel", 1, 9, 500), here, lambda pid: found) is ended


def test_two_containers_that_share_a_volume_have_two_marks_for_process_1() -> None:
    """Each prints its own mark and whether it takes this process, and the other container's, for dead."""
    script = (
        "import sys\n"
        "from paceline.fit.files.atomic_write import has_ended, parse_owner, started_at, this_process\n"
        "here = this_process()\n"
        "print(here, [has_ended(parse_owner(mark), here, started_at) for mark in sys.argv[1:]])\n"
    )
    marks = [str(this_process())]
    for _ in range(2):
        container = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
        ended = subprocess.run(
            [*container, sys.executable, "-c", script, *marks], capture_output=True, text=True, timeout=30
        )
        if ended.returncode and "unshare" in ended.stderr:
            pytest.skip(f"this user cannot make process namespaces here: {ended.stderr.strip()}")
        mark, verdicts = ended.stdout.strip().split(" ", 1)
        assert parse_owner(mark).pid == 1
        assert verdicts == str([None] * len(marks))
        marks.append(mark)
    assert len(set(marks)) == 3


def test_without_proc_the_hosts_name_and_the_number_must_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(atomic_write, "_PROC", tmp_path / "proc")
    monkeypatch.setattr("socket.gethostname", lambda: "my-host.example.com")
    assert this_process() == Owner("myhostexamplecom", 0, os.getpid(), 0)
    assert started_at(os.getpid()) == 0
    dead = subprocess.Popen(["true"])
    dead.wait(20)
    assert started_at(dead.pid) is None


def test_a_process_that_ends_while_it_is_looked_at_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel opens its file and then knows of none: "nobody can tell" kept what it had left for a day."""

    def ends(self: Path, **_: object) -> str:
        raise ProcessLookupError(3, "No such process", str(self))

    monkeypatch.setattr(Path, "read_text", ends)
    ended = subprocess.Popen(["true"])
    ended.wait(20)
    assert started_at(ended.pid) is None
