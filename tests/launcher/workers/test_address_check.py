"""Agents find each other on loopback, and tell who it was that answered."""

import asyncio
import os
import socket

from paceline.cluster.spec import Address
from paceline.launcher.workers.address_check import Probe, look_for
from paceline.rendezvous.dialing import OTHER_JOB, REFUSED

KEY = b"k" * 32
NAME = socket.gethostname()


def looked(hostname: str = NAME, pid: int | None = None, key: bytes = KEY, *, closed: bool = False) -> tuple[str, ...]:
    async def look() -> tuple[str, ...]:
        probe = Probe(asyncio.get_running_loop(), KEY)
        probe.start()
        if closed:
            probe.close()
        try:
            return await look_for(
                hostname, os.getpid() if pid is None else pid, [Address("127.0.0.1", probe.port)], key
            )
        finally:
            probe.close()
            probe.close()

    return asyncio.run(look())


def test_the_agent_itself_is_found():
    assert looked() == ("",)


def test_another_host_with_the_same_address_is_not_taken_for_it():
    assert looked(hostname="elsewhere") == (f"host {NAME} answers there",)
    assert looked(pid=1) == (f"host {NAME} answers there",)


def test_another_key_finds_nobody():
    assert looked(key=b"other") == (OTHER_JOB,)


def test_a_probe_that_is_closed_answers_nobody():
    assert looked(closed=True) == (REFUSED,)


def test_no_address_gives_no_reason():
    assert asyncio.run(look_for("a", 1, [], KEY)) == ()
