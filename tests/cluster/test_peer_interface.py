"""Which interface leads to the peers; with real interfaces in tests/hosts."""

from pathlib import Path

import pytest

from paceline.cluster import peer_interface
from paceline.cluster.peer_interface import chosen_interfaces, devices_towards, net_devices

ADDRESSES = {
    "lo": ["127.0.0.1", "::1"],
    "docker0": ["172.17.0.1", "fe80::2%docker0"],
    "eth0": ["10.0.0.5", "fd00::5", "fe80::1%eth0"],
    "ib0": ["10.1.0.5"],
}


def test_the_interface_of_the_source_is_chosen() -> None:
    assert chosen_interfaces(["10.0.0.5"], ADDRESSES) == ("eth0",)
    assert chosen_interfaces(["fd00::5"], ADDRESSES) == ("eth0",)
    assert chosen_interfaces(["fe80::1"], ADDRESSES) == ("eth0",)


def test_each_is_named_once_in_the_order_of_the_sources() -> None:
    assert chosen_interfaces(["10.1.0.5", "10.0.0.5", "10.1.0.5"], ADDRESSES) == ("ib0", "eth0")


def test_loopback_is_left_to_mpi() -> None:
    assert chosen_interfaces(["127.0.0.1", "::1"], ADDRESSES) == ()
    assert chosen_interfaces(["127.0.0.1", "10.0.0.5"], ADDRESSES) == ("eth0",)


def test_an_address_of_no_interface_says_nothing() -> None:
    assert chosen_interfaces(["10.9.9.9"], ADDRESSES) == ()


def test_a_job_on_loopback_or_with_unknown_names_changes_nothing() -> None:
    assert devices_towards(["127.0.0.1", "localhost"]) == ""
    assert devices_towards(["name.invalid"]) == ""
    assert devices_towards([]) == ""


def test_rdma_ports_stay_beside_an_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlx5_0" / "ports" / "1").mkdir(parents=True)
    (tmp_path / "mlx5_1" / "ports" / "2").mkdir(parents=True)
    monkeypatch.setattr(peer_interface, "_RDMA_DEVICES", tmp_path)
    assert net_devices(["eth0"]) == "eth0,mlx5_0:1,mlx5_1:2"
    assert net_devices([]) == ""
