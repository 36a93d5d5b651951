"""Ports for a cluster on this host."""

import socket

from paceline.cluster.free_ports import free_ports


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_no_ports() -> None:
    assert free_ports(0) == ()
