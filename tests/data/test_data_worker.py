"""A data worker before there is anything to do."""

import socket
import threading

import pytest

from paceline.data.workers.data_worker import await_dispatcher
from ports import HoldPorts


def test_a_data_worker_whose_service_nobody_calls_says_what_it_waits_for(
    hold_ports: HoldPorts, capfd: pytest.CaptureFixture[str]
) -> None:
    (port,) = hold_ports(1)
    waiting = threading.Thread(target=await_dispatcher, args=(f"127.0.0.1:{port}", 0.0), daemon=True)
    waiting.start()
    told = ""
    while "paceline.data.service" not in told:
        assert waiting.is_alive()
        told += capfd.readouterr().err
        waiting.join(0.05)
    with socket.create_server(("127.0.0.1", port)):
        waiting.join(60)
    assert not waiting.is_alive()
    assert (told + capfd.readouterr().err).count("has nothing to do yet: the script has not called") == 1
