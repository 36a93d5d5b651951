"""Which seed a job begins with."""

from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from paceline.launcher.hosts.host_facts import facts_of_this_host
from paceline.launcher.job import JobDescription, Snapshots
from paceline.launcher.kept_seed import kept_seed, seed_of
from paceline.store.manifest import SnapshotMeta
from paceline.store.parts import Part
from paceline.store.snapshots import SnapshotStore, Writer


def job_in(directory: Path, seed: int | None = None) -> JobDescription:
    snapshots = Snapshots(directory=str(directory), every=None, keep=None)
    return JobDescription(command=("true",), num_workers=1, environment={}, seed=seed, snapshots=snapshots)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory with a snapshot of a job whose seed was 7."""
    store = SnapshotStore(tmp_path / "kept", writer=Writer("job"))
    record = store.write_part(1, 0, Part({"w": numpy.zeros(1)}, {}))
    store.commit(1, SnapshotMeta(0, 0, 1, {"seed": 7}), [record])
    return tmp_path / "kept"


def test_a_job_that_goes_on_has_the_seed_that_it_began_with(kept: Path) -> None:
    assert kept_seed(str(kept)) == 7
    assert seed_of(job_in(kept), []) == 7
    assert seed_of(job_in(kept, seed=3), []) == 3


def test_where_this_machine_does_not_see_the_snapshots_a_host_says_the_seed(tmp_path: Path) -> None:
    """The user's own machine is no host of the job, and does not mount what the hosts share."""
    job = job_in(tmp_path / "not_mounted")
    blind = facts_of_this_host(job)
    assert seed_of(job, [blind, replace(blind, kept_seed=9)]) == 9
    assert seed_of(replace(job, seed=3), [replace(blind, kept_seed=9)]) == 3
    assert seed_of(job, [blind]) != seed_of(job, [blind])  # 1 in 4 thousand million


def test_a_host_that_says_nonsense_is_not_believed(tmp_path: Path) -> None:
    job = job_in(tmp_path / "not_mounted")
    assert seed_of(job, [replace(facts_of_this_host(job), kept_seed=-1)]) >= 0
