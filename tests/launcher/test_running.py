"""What is refused before anything of a job is started."""

import resource
from pathlib import Path

import pytest

from paceline.cluster.job_options import JobOptions
from paceline.errors import ConfigurationError
from paceline.launcher.job import JobDescription
from paceline.launcher.running import check


def test_a_wrong_tf_config():
    job = JobDescription(command=("true",), num_workers=2, environment={"TF_CONFIG": "{'cluster': {}}"})
    with pytest.raises(ConfigurationError, match="TF_CONFIG"):
        check(job)


def test_a_log_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    job = JobDescription(
        command=("true",), num_workers=1, environment={}, options=JobOptions(log_dir=tmp_path / "file")
    )
    with pytest.raises(ConfigurationError, match="--log-dir"):
        check(job)


def test_a_log_folder_is_made(tmp_path: Path):
    check(
        JobDescription(
            command=("true",), num_workers=1, environment={}, options=JobOptions(log_dir=tmp_path / "a" / "b")
        )
    )
    assert (tmp_path / "a" / "b").is_dir()


def test_more_workers_than_open_files():
    """The system refused in the middle of the start, with `[Errno 24]` and no fix."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    job = JobDescription(command=("true",), num_workers=allowed, environment={})
    with pytest.raises(ConfigurationError, match=r"--workers: .* open files, .* ulimit -n \d+ \[open-files\]"):
        check(job)
    check(JobDescription(command=("true",), num_workers=8, environment={}))


@pytest.mark.parametrize("inside", ["", "/deeper/still"])
def test_snapshots_where_no_folder_can_be(tmp_path: Path, inside: str):
    """Each rank found that out, after its import of TensorFlow, as `[Errno 17]`."""
    (tmp_path / "file").write_text("")
    options = JobOptions(snapshot_dir=f"{tmp_path}/file{inside}", seed=3)
    job = JobDescription(command=("true",), num_workers=2, environment={}, options=options)
    with pytest.raises(ConfigurationError, match=r"--snapshot-dir: .*file is no folder\) \[option\]"):
        check(job)
