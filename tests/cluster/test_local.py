"""A cluster on this host, and the ports for it."""

import socket

import pytest

from paceline.cluster.free_ports import free_ports
from paceline.cluster.local import local_cluster
from paceline.cluster.spec import Task
from paceline.cluster.tf_config import parse_tf_config


def test_workers_in_the_order_of_their_ports() -> None:
    spec = local_cluster([2223, 2222])
    assert spec.as_dict() == {"worker": ["127.0.0.1:2223", "127.0.0.1:2222"]}
    assert parse_tf_config(spec.to_tf_config(Task("worker", 1))) == (spec, Task("worker", 1))


@pytest.mark.parametrize("ports", [[], [2222, 2222]])
def test_refuses_no_port_and_one_port_twice(ports: list[int]) -> None:
    with pytest.raises(ValueError, match="received the ports"):
        local_cluster(ports)


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_no_ports() -> None:
    assert free_ports(0) == ()
