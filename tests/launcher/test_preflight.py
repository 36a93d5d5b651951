"""What is refused, and what is told, before anything starts; and `--dry-run`."""

import os
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.job_options import JobOptions
from paceline.errors import ConfigurationError
from paceline.launcher import preflight
from paceline.launcher.dry_run import dry_run_text
from paceline.launcher.job import JobDescription
from paceline.launcher.running import run


def job_with(num_workers: int = 2, *, environment: dict[str, str] | None = None, **options: Any) -> JobDescription:
    return JobDescription(
        command=("touch", "started"),
        num_workers=num_workers,
        environment=environment or {},
        options=JobOptions(**options),
    )


def test_all_that_cannot_be_right_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was found when the job came to need it, or never."""
    monkeypatch.setattr(preflight, "may_have_gpus", lambda: False)
    (tmp_path / "file").touch()
    job = job_with(
        secret_file=tmp_path / "gone",
        snapshot_dir=str(tmp_path / "file" / "deeper"),
        communication="nccl",
        observe=tmp_path / "seen",
        events=tmp_path / "seen" / "events.jsonl",
        timeline="9:3",
    )
    with pytest.raises(ConfigurationError) as refused:
        preflight.refuse_impossible(job)
    message = str(refused.value)
    for named in (
        "--secret-file",
        "gone",
        "--snapshot-dir",
        "--communication mpi",
        "which --observe writes",
        "--timeline",
    ):
        assert named in message
    assert message.endswith("[option]")


def test_operations_need_a_folder_for_the_timeline() -> None:
    with pytest.raises(ConfigurationError, match="without --observe FOLDER"):
        preflight.refuse_impossible(job_with(timeline="3:9"))


def test_no_ssh_client_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without one could run no job, since the option's default is `ssh`."""
    monkeypatch.setenv("PATH", "")
    preflight.refuse_impossible(job_with())


def test_a_secret_that_can_be_read_once_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "secret")
    preflight.refuse_impossible(job_with(secret_file=tmp_path / "secret"))


@pytest.mark.parametrize("folder", ["/proc/snapshots", "/sys/snapshots"])
def test_a_folder_in_which_nobody_can_write(folder: str) -> None:
    with pytest.raises(ConfigurationError, match="this user may not write in"):
        preflight.refuse_impossible(job_with(snapshot_dir=folder))


def test_what_is_fine_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "may_have_gpus", lambda: True)
    (tmp_path / "secret").write_text("x")
    job = job_with(
        secret_file=tmp_path / "secret",
        ssh_command="env ssh",
        snapshot_dir=str(tmp_path / "a" / "b"),
        communication="nccl",
    )
    preflight.refuse_impossible(job)
    assert not (tmp_path / "a").exists()
    preflight.refuse_impossible(job_with(snapshot_dir="s3://bucket/snapshots"))


def test_variables_that_mean_nothing_are_told_with_those_that_were_meant() -> None:
    known = {"PACELINE_MAX_RESTARTS": "3", "PACELINE_RANK": "0", "PACELINE_SLURM_TIME": "1:00:00", "HOME": "/"}
    assert list(preflight.unknown_variables(known)) == []
    [line] = preflight.unknown_variables({**known, "PACELINE_MAX_RESTART": "3"})
    assert line.endswith("did you mean PACELINE_MAX_RESTARTS? [unknown-variable]")
    assert list(preflight.unknown_variables({"PACELINE_MY_OWN": "3"})) == []


def test_more_processes_than_memory_or_cores() -> None:
    assert preflight.crowded_text(8, 2, 100 * 10**9) == ""
    assert preflight.crowded_text(9, 2, 100 * 10**9).endswith("they share 2 cores. [crowded]")
    assert "need about 4.8 GB" in preflight.crowded_text(8, 8, 10**9)


def test_a_dry_run_tells_all_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    job = job_with(
        3,
        ps=1,
        seed=7,
        dry_run=True,
        log_dir=tmp_path / "logs",
        environment={"PACELINE_MAX_RESTART": "3", "PATH": "/bin"},
    )
    assert run(job) == 0
    shown = capsys.readouterr()
    assert "1 chief, 3 worker, 1 ps" in shown.out
    assert "--seed 7" in shown.out
    assert "touch started" in shown.out
    assert "PACELINE_MAX_RESTARTS" in shown.err
    assert list(tmp_path.iterdir()) == []
    assert "3 workers on this host" in dry_run_text(job)
