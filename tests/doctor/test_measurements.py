"""What the doctor measures of this machine, and of a connection with itself."""

import socket
import threading
from pathlib import Path

import pytest

from paceline.doctor.host_condition import condition
from paceline.doctor.pair_speed import listen, meet
from paceline.doctor.records import AskCondition, Meet

KEY = b"k" * 32


def wait_for_servers() -> None:
    for thread in threading.enumerate():
        if thread.name == "answers a peer":
            thread.join(10)


def test_this_machine() -> None:
    has = condition(AskCondition(0, ""))
    assert set(has.versions) >= {"Python", "TensorFlow", "Keras", "MPICH", "mpi4py", "Paceline"}
    assert has.lowest_versions["TensorFlow"] == "2.17"
    assert 1 <= len(has.cores) <= has.num_all_cores
    assert has.num_numa_nodes >= 1
    assert 0 < has.memory_free_bytes <= has.memory_bytes
    assert 0 <= has.steal_share <= 1
    assert 1e-4 < has.kernel_seconds < 1
    assert [disk.use for disk in has.disks] == ["temporary files"]
    assert "127.0.0.1" in {port.address for port in has.ports if not port.fault}
    assert has.num_outgoing_ports > 0


@pytest.mark.parametrize(("name", "fault"), [("new/deeper", ""), ("file/below", "is not a directory")])
def test_where_snapshots_will_be(tmp_path: Path, name: str, fault: str) -> None:
    (tmp_path / "file").touch()
    snapshots = next(disk for disk in condition(AskCondition(3, str(tmp_path / name))).disks if disk.use == "snapshots")
    assert snapshots.fault.endswith(fault)
    assert bool(snapshots.fault) == bool(fault)
    assert snapshots.total_bytes > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"], "nothing is made"


def test_a_connection_is_measured_at_the_first_address_that_answers() -> None:
    met = meet(Meet(("::1", "127.0.0.1"), listen(KEY), KEY))
    wait_for_servers()
    assert met.fault == ""
    assert 0 < met.round_trip_seconds < 1
    assert met.bytes_per_second > 1e6


def test_only_a_peer_that_knows_the_key_is_answered() -> None:
    port = listen(KEY)
    met = meet(Meet(("127.0.0.1",), port, b"x" * 32))
    assert met.fault.startswith("127.0.0.1 (")
    assert meet(Meet(("127.0.0.1",), port, KEY)).fault == "", "a stranger does not keep the peer away"
    wait_for_servers()
    assert "refused" in meet(Meet(("127.0.0.1",), port, KEY)).fault, "the port is closed"


def test_a_host_without_addresses() -> None:
    assert meet(Meet((), 1, KEY)).fault == "it has no address"


def test_a_peer_that_says_nothing_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert meet(Meet(("127.0.0.1",), silent.getsockname()[1], KEY)).fault == "127.0.0.1 (timed out)"
