"""Which seed a job begins with, and from which snapshot a new run of it would continue."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

from paceline.cluster.hosts import HostSlots
from paceline.cluster.job_options import JobOptions
from paceline.errors import ConfigurationError
from paceline.launcher.existing_snapshots import kept_seed, newest_snapshot, resume_lines, seed_of
from paceline.launcher.hosts.host_facts import facts_of_this_host
from paceline.launcher.job import JobDescription
from paceline.store.manifest import SnapshotMeta
from paceline.store.shards import Shard
from paceline.store.snapshots import SnapshotStore, Writer


def job_in(directory: Path, seed: int | None = None) -> JobDescription:
    options = JobOptions(snapshot_dir=str(directory), seed=seed)
    return JobDescription(command=("true",), num_workers=1, environment={}, options=options)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory with a snapshot of a job whose seed was 7."""
    store = SnapshotStore(tmp_path / "kept", writer=Writer("job"))
    record = store.write_shard(1, 0, Shard({"w": numpy.zeros(1)}, {}))
    store.commit(1, SnapshotMeta(0, 0, 1, {"seed": 7}), [record])
    return tmp_path / "kept"


def test_a_job_that_goes_on_has_the_seed_that_it_began_with(kept: Path) -> None:
    assert kept_seed(str(kept)) == 7
    assert seed_of(job_in(kept), []) == 7
    assert seed_of(job_in(kept, seed=3), []) == 3
    assert seed_of(replace(job_in(kept), hosts=(HostSlots("a", 1),)), []) != 7  # a machine that is no host has no say


class NoCredentialsError(Exception):
    """What an object store's own package raises."""


@pytest.mark.parametrize("fault", [NoCredentialsError("Unable to locate credentials"), OSError("no disk")], ids=repr)
def test_a_store_that_cannot_be_read_is_left_to_the_workers(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the head with a traceback where only the hosts have the right to read."""

    def fail(_: SnapshotStore) -> None:
        raise fault

    monkeypatch.setattr(SnapshotStore, "entries", fail)
    assert kept_seed("memory://kept") is None


def test_a_package_that_is_missing_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConfigurationError("no s3fs")

    monkeypatch.setattr(SnapshotStore, "__init__", refuse)
    with pytest.raises(ConfigurationError, match="no s3fs"):
        kept_seed("s3://kept")


def test_where_this_machine_does_not_see_the_snapshots_a_host_says_the_seed(tmp_path: Path) -> None:
    """The user's own machine is no host of the job, and does not mount what the hosts share."""
    job = job_in(tmp_path / "not_mounted")
    blind = facts_of_this_host(job)
    assert seed_of(job, [blind, msgspec.structs.replace(blind, kept_seed=9)]) == 9
    assert (
        seed_of(replace(job, options=replace(job.options, seed=3)), [msgspec.structs.replace(blind, kept_seed=9)]) == 3
    )
    assert seed_of(job, [blind]) != seed_of(job, [blind])  # 1 in 4 thousand million


def test_a_host_that_says_nonsense_is_not_believed(tmp_path: Path) -> None:
    job = job_in(tmp_path / "not_mounted")
    assert seed_of(job, [msgspec.structs.replace(facts_of_this_host(job), kept_seed=-1)]) >= 0


class HostThatSees:
    """A crew on a host that can read `name`, or that is gone."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    async def newest_snapshot(self, directory: str) -> str:
        if self._name is None:
            raise ConnectionError("is gone")
        return self._name


def lines_of(job: JobDescription, *names: str | None, is_preempted: bool = False) -> list[str]:
    crews: Any = [HostThatSees(name) for name in names]
    return asyncio.run(resume_lines(job, crews, is_preempted=is_preempted))


def test_the_line_names_the_snapshot_that_a_host_can_read_and_promises_nothing_else(kept: Path) -> None:
    job = job_in(Path("not_mounted_here"))
    line = "paceline: run the same command again to continue from snapshot s1 in not_mounted_here"
    assert lines_of(job, None, "s1") == [line]
    assert lines_of(job, "", "s1") == []
    assert lines_of(job, None) == []
    assert lines_of(replace(job, options=JobOptions()), "s1") == []
    # The script has a directory of its own.
    [line] = lines_of(replace(job, options=JobOptions()), "s1", is_preempted=True)
    assert line.endswith("continue from the newest snapshot")
    assert newest_snapshot(str(kept)) == "step-000000000001"
    (kept / "step-000000000001" / "manifest.json").write_text("{")
    assert newest_snapshot(str(kept)) == newest_snapshot("no_such://kept") == ""
