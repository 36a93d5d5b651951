"""What is refused before anything of a job is started."""

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
