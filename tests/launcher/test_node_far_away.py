"""Nodes whose only way to node 0 is slow, stops carrying for a while, or breaks: through a proxy of this process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.hosts.proxy import Proxy
from tests.launcher.conftest import Job

pytestmark = pytest.mark.processes

HELLO = "import os; print('rank', os.environ['PACELINE_RANK'])"
NAP = """
import os, time
open(f"up_{os.environ['PACELINE_RANK']}", "w").write("up\\n")
time.sleep(600)
"""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Both nodes need one: they give the rendezvous different addresses, which otherwise are the job's key."""
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_text("far away")
    return path


class Far:
    """Node 0, and node 1 behind a proxy."""

    def __init__(self, paceline_run: Callable[..., Job], port: int, proxy: Proxy, secret: Path) -> None:
        self.proxy = proxy
        self._run, self._port, self._secret = paceline_run, port, secret

    def start(self, script: str) -> tuple[Job, Job]:
        return self._node(script, 0, self._port), self._node(script, 1, self.proxy.port)

    def _node(self, script: str, rank: int, port: int) -> Job:
        place = (
            "--nnodes",
            "2",
            "--node-rank",
            str(rank),
            "--rendezvous",
            f"127.0.0.1:{port}",
            "--start-timeout",
            "120",
        )
        return self._run(script, *place, variables={"PACELINE_SECRET_FILE": str(self._secret)})


@pytest.fixture
def far(paceline_run: Callable[..., Job], free_port: int, secret: Path) -> Iterator[Far]:
    with Proxy("127.0.0.1", free_port, delay_seconds=0.15) as proxy:
        yield Far(paceline_run, free_port, proxy, secret)


def test_a_slow_way_is_a_way(far: Far):
    head, node = (job.finish() for job in far.start(HELLO))
    assert (head.code, node.code) == (0, 0), head.stderr + node.stderr
    assert "rank 0" in head.stdout
    assert "rank 1" in node.stdout


def test_a_way_that_breaks_ends_both_sides(far: Far):
    head, node = far.start(NAP)
    head.wait_for_file("up_0")
    node.wait_for_file("up_1")
    far.proxy.cut()
    ended = [head.finish(), node.finish()]
    assert [one.code for one in ended] == [69, 69]
    assert "where rank 1 ran, is gone" in ended[0].stderr
    assert "node 0 (host" in ended[1].stderr
    assert head.is_gone()
    assert node.is_gone()


def test_a_way_that_carries_nothing_ends_both_sides_after_the_limit_of_silence(far: Far):
    head, node = far.start(NAP)
    head.wait_for_file("up_0")
    node.wait_for_file("up_1")
    far.proxy.pause()
    ended = [head.finish(), node.finish()]
    assert [one.code for one in ended] == [69, 69]
    assert "no message from it for 10 s" in ended[0].stderr
    assert "no message from it for 10 s" in ended[1].stderr
