"""Limits of control groups, of both versions, also where only the container's own group can be seen."""

from pathlib import Path

import psutil
import pytest

from paceline.cluster import control_groups
from paceline.cluster.control_groups import core_quota, free_memory_bytes, memory_bytes, parse_quota


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of /sys/fs/cgroup and /proc/self/cgroup (`self`)."""
    monkeypatch.setattr(control_groups, "_ROOT", tmp_path)
    monkeypatch.setattr(control_groups, "_GROUPS_OF_SELF", tmp_path / "self")
    return tmp_path


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_this_machine_has_limits_that_can_be_used() -> None:
    quota = core_quota()
    assert quota is None or quota > 0
    assert 0 < memory_bytes() <= psutil.virtual_memory().total


def test_version_2_has_the_smallest_limit_of_all_groups_around(groups: Path) -> None:
    _write(groups, self="0::/job/step")
    _write(groups / "job", cpu__max="150000 100000", memory__max="3000000")
    _write(groups / "job/step", cpu__max="max 100000", memory__max="max")
    assert (core_quota(), memory_bytes()) == (1.5, 3000000)


def test_version_1_has_a_tree_for_each_controller(groups: Path) -> None:
    _write(groups, self="5:memory:/job\n2:cpu,cpuacct:/job\n0::/")
    _write(groups / "memory/job", memory__limit_in_bytes="9223372036854771712")
    _write(groups / "memory", memory__limit_in_bytes="4000000")
    _write(groups / "cpu/job", cpu__cfs_quota_us="250000", cpu__cfs_period_us="100000")
    _write(groups / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert (core_quota(), memory_bytes()) == (2.5, 4000000)


def test_free_memory_is_what_the_tightest_group_leaves(groups: Path) -> None:
    """Files in the kernel's cache are no use of memory that would stop a program."""
    _write(groups, self="0::/job/step", memory__stat="inactive_file 999")
    _write(groups / "job", memory__max="3000", memory__current="1500", memory__stat="anon 500\ninactive_file 1000")
    _write(groups / "job/step", memory__max="max", memory__current="1500", memory__stat="inactive_file 1000")
    assert (free_memory_bytes(10_000), free_memory_bytes(2_000)) == (2_500, 2_000)


def test_free_memory_of_version_1(groups: Path) -> None:
    _write(groups, self="5:memory:/job\n0::/")
    _write(
        groups / "memory/job",
        memory__limit_in_bytes="4000",
        memory__usage_in_bytes="4100",
        memory__stat="inactive_file 5\ntotal_inactive_file 300",
    )
    assert free_memory_bytes(10_000) == 200


def test_free_memory_without_limits_is_the_hosts(groups: Path) -> None:
    assert free_memory_bytes(10_000) == 10_000


def test_in_a_container_the_path_is_one_of_the_host(groups: Path) -> None:
    _write(groups, self="5:memory:/docker/3f\n2:cpu:/docker/3f")
    _write(groups / "memory", memory__limit_in_bytes="4000000")
    _write(groups / "cpu", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    assert (core_quota(), memory_bytes()) == (0.5, 4000000)


def test_without_control_groups_there_is_the_host(groups: Path) -> None:
    assert (core_quota(), memory_bytes()) == (None, psutil.virtual_memory().total)


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000\n", None), ("250000 100000", 2.5), ("", None), ("x y", None), ("0 0", None), ("5", None)],
)
def test_quota_text(text: str, quota: float | None) -> None:
    assert parse_quota(text) == quota
