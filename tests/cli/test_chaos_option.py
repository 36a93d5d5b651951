"""``--chaos`` becomes a variable of the workers, or is refused before anything starts."""

import pytest

from paceline.cli.chaos_option import under_chaos
from paceline.cluster import environment
from paceline.errors import ConfigurationError
from paceline.launcher.job import JobDescription, Snapshots


def job(**options: object) -> JobDescription:
    snapshots = Snapshots(directory="snapshots", every=None, keep=None)
    return JobDescription(command=("true",), num_workers=2, environment={"A": "1"}, snapshots=snapshots, **options)  # type: ignore[arg-type]


def test_workers_are_told_by_a_variable() -> None:
    struck, line = under_chaos(job(max_restarts=1), ["kill:rank=1,step=50"])
    assert struck.environment == {"A": "1", environment.CHAOS: "kill:rank=1,step=50,generation=1"}
    assert line == "chaos: kill rank 1 at step 50 of generation 1"


def test_what_the_job_would_not_survive_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--hang-timeout"):
        under_chaos(job(), ["stop:step=50"])
    under_chaos(job(hang_timeout_seconds=5.0), ["stop:step=50"])
