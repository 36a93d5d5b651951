"""`once` on two hosts, and `once_per_host`: who does it, and what the others hear."""

from pathlib import Path

import pytest
from by_hand import start_by_hand
from lab import Lab

pytestmark = pytest.mark.processes

SCRIPT = """
import socket, paceline

@paceline.once
def in_job():
    return socket.gethostname()

@paceline.once_per_host
def on_host():
    return socket.gethostname()

print("of", socket.gethostname(), in_job(), on_host(), flush=True)
try:
    with paceline.once() as first:
        if first:
            raise OSError("no disk")
except (OSError, RuntimeError) as error:
    print(type(error).__name__, error, flush=True)
print("again", in_job(), flush=True)
"""


def test_the_chief_does_it_for_the_job_and_one_rank_for_its_host(two_hosts: Lab, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    alpha, beta = (program.ended() for program in start_by_hand(two_hosts, script))
    for one, host in ((alpha, "alpha"), (beta, "beta")):
        assert one.code == 0, one.output
        assert one.lines("of") == [f"of {host} alpha {host}"], one.output
        assert one.lines("again") == ["again alpha"]
    assert alpha.lines("OSError") == ["OSError no disk"]
    [told] = beta.lines("RuntimeError")
    assert "failed on rank 0 (alpha): OSError: no disk." in told
    assert told.endswith(" [once-failed]")
