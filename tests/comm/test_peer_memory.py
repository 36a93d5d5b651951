"""Reading and combining arrays in the memory of processes of this host."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from paceline.comm.group import Array
from paceline.comm.peer_memory import PeerMemory, peers_of
from paceline.comm.solo import SoloGroup

_TELLS_WHERE = """
import os, sys, numpy
array = numpy.arange(300_000, dtype=numpy.float32)
print(os.getpid(), array.ctypes.data, flush=True)
sys.stdin.read()
"""
_READS_OF_THE_ENDED = """
import signal, sys, numpy
from paceline.comm.group import Array
from paceline.comm.peer_memory import PeerMemory, peers_of
from paceline.comm.solo import SoloGroup
signal.alarm(2)
PeerMemory(0, [0, int(sys.argv[1])]).read(1, 4096, numpy.empty(8))
"""
_DEADLINE_SECONDS = 60


def test_it_reads_what_another_process_holds() -> None:
    other = subprocess.Popen([sys.executable, "-c", _TELLS_WHERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        process_id, address = map(int, other.stdout.readline().split())
        found = np.empty(299_000, np.float32)
        PeerMemory(0, [os.getpid(), process_id]).read(1, address + 4 * 1000, found)
    finally:
        other.stdin.close()
        other.stdout.close()
        other.wait(_DEADLINE_SECONDS)
    np.testing.assert_array_equal(found, np.arange(1000, 300_000, dtype=np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
@pytest.mark.parametrize("count", [1, 65_537, 1_000_003])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_it_combines_in_the_order_of_ranks(rank: int, count: int, dtype: type) -> None:
    generator = np.random.default_rng(count)
    arrays = [(1000 * generator.standard_normal(count)).astype(dtype) for _ in range(3)]
    out = np.empty(count, dtype)
    addresses = [array.ctypes.data for array in arrays]
    PeerMemory(rank, [os.getpid()] * 3).combine(arrays[rank], addresses, np.add, out)
    assert out.tobytes() == ((arrays[0] + arrays[1]) + arrays[2]).tobytes()


def test_what_cannot_be_read_is_an_error() -> None:
    with pytest.raises(OSError, match="reading the memory of rank 1: Bad address"):
        PeerMemory(0, [os.getpid()] * 2).read(1, 4096, np.empty(8))


def test_the_memory_of_a_rank_that_has_ended_is_waited_for_as_in_any_collective() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(_DEADLINE_SECONDS)
    reader = subprocess.run(
        [sys.executable, "-c", _READS_OF_THE_ENDED, str(ended.pid)], timeout=_DEADLINE_SECONDS, check=False
    )
    assert reader.returncode == -signal.SIGALRM


class _WithAnAbsentPeer(SoloGroup):
    """What a rank hears of a second one in a container of its own, whose process number is nobody's here."""

    def __init__(self, process_id: int) -> None:
        super().__init__()
        self._place = np.array([[process_id, 4096]], np.int64)

    def all_gather(self, array: Array) -> list[Array]:
        return [array, self._place if array.dtype == np.int64 else np.zeros_like(array)]


def test_a_rank_in_another_container_is_reached_through_the_windows() -> None:
    """The probe waited for ever for a process that this container does not have; and what it saw was not heeded."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(_DEADLINE_SECONDS)
    assert peers_of(_WithAnAbsentPeer(ended.pid)) is None
