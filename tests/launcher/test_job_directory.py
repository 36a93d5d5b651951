"""The ranks' private directory: the same for all of a host, and gone with the job however it ends."""

import os
import time
from pathlib import Path

import pytest

from paceline.cluster import environment
from paceline.cluster.job_directory import job_directory, make_private, own_job_directory, remove_job_directory
from paceline.errors import ConfigurationError
from paceline.fit.files.claims import Claims

MAKE = """
import os, signal, sys, time
from pathlib import Path
private = Path(os.environ["PACELINE_JOB_DIRECTORY"])
private.mkdir(mode=0o700, exist_ok=True)
(private / os.environ["PACELINE_RANK"]).write_text("mine")
Path("private." + os.environ["PACELINE_RANK"]).write_text(f"{private}\\n")
while not all((told := Path(f"private.{rank}")).exists() and told.read_text() for rank in range(2)):
    time.sleep(0.01)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGKILL) if os.environ['PACELINE_RANK'] == '1' else time.sleep(600)", 137),
    ],
)
def test_it_is_gone_when_the_job_has_ended(run, tmp_path: Path, end: str, code: int) -> None:
    assert run(MAKE + end).code == code
    places = {(tmp_path / f"private.{rank}").read_text().strip() for rank in range(2)}
    assert len(places) == 1
    assert not Path(places.pop()).exists()


@pytest.mark.processes
def test_it_is_gone_when_the_launcher_was_killed(start) -> None:
    job = start(MAKE + "time.sleep(600)")
    private = Path(job.wait_for_file("private.0"))
    job.wait_for_file("private.1")
    assert private.is_dir()
    os.kill(job.process.pid, 9)
    assert job.is_gone()
    give_up_at = time.monotonic() + 5
    while private.exists() and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert not private.exists()


def test_a_rank_looks_where_its_launcher_says_and_else_where_its_agent_will_look() -> None:
    told = {environment.JOB_DIRECTORY: "/scratch/paceline-ab12"}
    assert own_job_directory("ab12", told) == Path("/scratch/paceline-ab12")
    assert own_job_directory("ab12", {}) == job_directory("ab12")
    assert job_directory("ab12") != job_directory("cd34")
    remove_job_directory("never-made")


def test_what_a_rank_has_made_another_one_uses(tmp_path: Path) -> None:
    private = tmp_path / "paceline-ab12"
    for _ in range(2):
        make_private(private)
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("open", "a directory of user {user} with mode 755"),
        ("link", "a link of user {user} with mode 777"),
        ("dangling", "a link of user {user} with mode 777"),
        ("file", "a file of user {user} with mode 600"),
        ("another's", "a directory of user {user} with mode 700; expected a directory of user {other}"),
    ],
)
def test_what_somebody_else_may_have_made_is_refused(
    kind: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it first held the ranks' locks and wrote into their ledgers."""
    found, user = tmp_path / "paceline-ab12", os.geteuid()
    match kind:
        case "link":
            make_private(tmp_path / "elsewhere")
            found.symlink_to(tmp_path / "elsewhere")
        case "dangling":
            found.symlink_to(tmp_path / "elsewhere")
        case "file":
            found.touch(mode=0o600)
        case _:
            found.mkdir(mode=0o755 if kind == "open" else 0o700)
    if kind == "another's":
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(ConfigurationError) as caught, Claims(found).claimed("/models/a.keras", "m1"):
        pass
    assert words.format(user=user, other=user + 1) in str(caught.value)
    assert "TMPDIR" in str(caught.value)
    assert kind != "link" or not list(found.iterdir())
