"""What the doctor says of what it has measured."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from paceline.doctor.comparisons import findings_between, findings_of_network
from paceline.doctor.findings import Finding, can_run, findings_of
from paceline.doctor.records import Condition, Disk, Met, Port
from paceline.wire.codec import Decoder, encode

GB = 10**9
WELL = Condition(
    hostname="alpha",
    versions={"Python": "3.12.1", "TensorFlow": "2.21.0", "Keras": "3.15.1", "MPICH": "5.0.2", "mpi4py": "4.1.2"},
    lowest_versions={"TensorFlow": "2.17", "Keras": "3.10", "MPICH": "4.2", "mpi4py": "4.0"},
    cores=(0, 1, 2, 3),
    num_all_cores=4,
    core_quota=None,
    num_numa_nodes=1,
    num_gpus=0,
    num_workers=4,
    load=0.5,
    kernel_seconds=0.01,
    steal_share=0.0,
    memory_free_bytes=15 * GB,
    memory_bytes=16 * GB,
    shared_memory_free_bytes=8 * GB,
    shared_memory_bytes=8 * GB,
    disks=(Disk("temporary files", "/tmp", 50 * GB, 100 * GB, ""),),
    ports=(Port("10.0.0.1", ""), Port("127.0.0.1", "")),
    num_outgoing_ports=28_232,
)


def wrong(findings: Any) -> list[Finding]:
    return [one for one in findings if one.severity != "ok"]


def test_a_good_host() -> None:
    findings = findings_of(WELL)
    assert not wrong(findings)
    assert can_run(findings)
    assert {one.check for one in findings} >= {"versions", "cores", "load", "steal", "memory", "/dev/shm", "disk"}


@pytest.mark.parametrize(
    ("changed", "severity", "check", "words"),
    [
        ({"versions": WELL.versions | {"Keras": "not installed"}}, "error", "versions", ("Keras is not", "'keras>=")),
        ({"versions": WELL.versions | {"TensorFlow": "2.9.3"}}, "error", "versions", ("2.9.3", "2.17", "pip install")),
        ({"core_quota": 0.5}, "warning", "cores", ("0.5 cores", "--cpus")),
        ({"num_workers": 6}, "warning", "cores", ("6 workers would share 4 cores", "4 at most")),
        ({"core_quota": 2.5}, "warning", "cores", ("4 workers would share 2 cores",)),
        ({"load": 7.0}, "warning", "load", ("7.0", "4 cores", "top")),
        ({"steal_share": 0.2}, "warning", "steal", ("20%", "dedicated")),
        ({"memory_free_bytes": 10**8}, "error", "memory", ("100.0 MB", "--memory")),
        ({"memory_free_bytes": 5 * GB}, "warning", "memory", ("5.0 GB", "4 workers", "2 at most")),
        ({"shared_memory_free_bytes": 1 << 20}, "warning", "/dev/shm", ("1.0 MB", "33.6 MB", "--shm-size")),
        ({"shared_memory_free_bytes": 0, "shared_memory_bytes": 0}, "warning", "/dev/shm", ("0 bytes",)),
        ({"disks": (Disk("snapshots", "/s", 10**8, GB, ""),)}, "warning", "disk", ("100.0 MB", "--snapshot-dir")),
        ({"disks": (Disk("temporary files", "/t", 0, GB, ""),)}, "error", "disk", ("full", "TMPDIR")),
        ({"disks": (Disk("snapshots", "/s", GB, GB, "/s is not a directory"),)}, "error", "disk", ("not a directory",)),
        ({"ports": (Port("127.0.0.1", "denied"),)}, "error", "ports", ("127.0.0.1 (denied)", "ip link set lo up")),
        ({"ports": (Port("10.0.0.1", "no"), Port("127.0.0.1", "no"))}, "error", "ports", ("127.0.0.1 (no)",)),
        ({"ports": (Port("10.0.0.1", "denied"),)}, "warning", "ports", ("10.0.0.1 (denied)",)),
        ({"num_outgoing_ports": 64}, "warning", "ports", ("64 ports", "sysctl")),
    ],
)
def test_what_is_wrong_is_told_with_its_fix(
    changed: dict[str, Any], severity: str, check: str, words: tuple[str, ...]
) -> None:
    findings = findings_of(replace(WELL, **changed))
    (found,) = wrong(findings)
    assert (found.severity, found.check) == (severity, check)
    assert all(word in f"{found.text} {found.fix}" for word in words), found
    assert can_run(findings) == (severity == "warning")


def test_what_differs_but_is_well() -> None:
    found = findings_of(replace(WELL, core_quota=1.5, num_workers=1, num_gpus=2, num_numa_nodes=2))
    (cores,) = (one.text for one in found if one.check == "cores")
    assert cores == "4 of 4 cores, a quota of 1.5, 2 NUMA nodes, 2 GPUs, for 1 worker"


def test_each_finding_has_its_fix() -> None:
    """For any numbers: of those that are wrong, nothing is left without an instruction."""
    sizes = some.integers(0, 1 << 60)
    numbers = some.integers(1, 1000)
    shares = some.floats(0, 1e4, allow_nan=False)

    @given(
        some.builds(
            Condition,
            hostname=some.just("a"),
            versions=some.dictionaries(some.sampled_from([*WELL.versions]), some.sampled_from(["1.0", "9", "x.y", ""])),
            lowest_versions=some.just(WELL.lowest_versions),
            num_all_cores=numbers,
            num_workers=numbers,
            core_quota=some.none() | some.floats(0.01, 100),
            load=shares,
            kernel_seconds=shares,
            steal_share=shares,
            memory_free_bytes=sizes,
            memory_bytes=sizes,
            shared_memory_free_bytes=sizes,
            shared_memory_bytes=sizes,
        )
    )
    def check(has: Condition) -> None:
        assert Decoder[Condition](Condition)(encode(has)) == has
        for one in findings_of(has):
            assert one.text
            assert bool(one.fix) == (one.severity != "ok")

    check()


def pair(bytes_per_second: float = 1.25e8, round_trip_seconds: float = 1e-4, fault: str = "") -> Met:
    return Met(round_trip_seconds, bytes_per_second, fault)


BETWEEN = {"alpha": WELL, "beta": replace(WELL, hostname="beta"), "gamma": replace(WELL, hostname="gamma")}
CLOCKS = {"alpha": 100.0, "beta": 100.2, "gamma": 99.9}


def test_hosts_that_are_alike() -> None:
    assert [one.check for one in findings_between(BETWEEN, CLOCKS)] == ["versions", "clocks"]
    assert not wrong(findings_between(BETWEEN, CLOCKS))
    assert not [*findings_between({"alpha": WELL}, {"alpha": 0.0})]


@pytest.mark.parametrize(
    ("versions", "severity", "words"),
    [
        ({"Keras": "3.10.0"}, "error", ("Keras is 3.10.0 on beta, 3.15.1 on alpha", "On beta", "'keras==3.15.1'")),
        ({"Python": "3.11.7"}, "error", ("Python is 3.11.7 on beta", "--remote-python")),
        ({"mpi4py": "4.0.0"}, "warning", ("mpi4py is 4.0.0 on beta", "'mpi4py==4.1.2'")),
        ({"llvmlite": "0.46"}, "error", ("llvmlite is 0.46 on beta", "On alpha type: pip install 'llvmlite==0.46'")),
    ],
)
def test_other_versions_on_a_host(versions: dict[str, str], severity: str, words: tuple[str, ...]) -> None:
    beta = replace(WELL, versions=WELL.versions | versions)
    (found,) = wrong(findings_between({**BETWEEN, "beta": beta}, CLOCKS))
    assert (found.severity, found.host, found.check) == (severity, "beta", "versions")
    assert all(word in f"{found.text} {found.fix}" for word in words), found


def test_a_clock_and_a_slow_host_are_told() -> None:
    slow = {**BETWEEN, "gamma": replace(WELL, kernel_seconds=0.02)}
    clock, speed = wrong(findings_between(slow, {**CLOCKS, "beta": 97.0}))
    assert (clock.host, clock.check, speed.host, speed.check) == ("beta", "clocks", "gamma", "speed")
    assert "3.0 s behind" in clock.text
    assert "2.0 times" in speed.text


def test_a_host_whose_clock_is_not_known_is_left_out() -> None:
    assert not wrong(findings_between(BETWEEN, {"beta": 100.0, "gamma": 0.0}))


HOSTS = ("alpha", "beta", "gamma", "delta")


@pytest.mark.parametrize(
    ("met", "told"),
    [
        ({(0, 1): pair(), (1, 2): pair(), (2, 3): pair(), (3, 0): pair()}, []),
        (
            {(0, 1): pair(1e6), (1, 2): pair(1e6), (2, 3): pair(), (3, 0): pair(), (1, 3): pair(1e6)},
            [("warning", "beta", "slow with alpha, gamma and delta (8 Mbit/s")],
        ),
        (
            {(0, 1): pair(fault="no"), (1, 2): pair(fault="no"), (2, 3): pair(), (3, 0): pair()},
            [("error", "beta", "no connection with alpha and gamma")],
        ),
        ({(0, 1): pair(1e6)}, [("warning", "", "between alpha and beta is slow")]),
        ({(0, 1): pair(fault="10.0.0.2 (refused)")}, [("error", "", "alpha cannot connect to beta: 10.0.0.2 (ref")]),
        (
            {(0, 1): pair(round_trip_seconds=0.5), (1, 2): pair(), (2, 3): pair(), (3, 0): pair()},
            [("warning", "", "500.00 ms")],
        ),
        ({(0, 1): pair(1e9), (1, 2): pair(2e8), (2, 0): pair(1e9)}, [("warning", "", "between beta and gamma")]),
        ({}, []),
    ],
)
def test_the_network(met: dict[tuple[int, int], Met], told: list[tuple[str, str, str]]) -> None:
    found = wrong(findings_of_network(HOSTS, met))
    assert [(one.severity, one.host) for one in found] == [(severity, host) for severity, host, _ in told]
    for one, (_, _, words) in zip(found, told, strict=True):
        assert words in one.text, one.text
        assert one.fix
