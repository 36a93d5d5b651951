"""Ranks that stand in for others: each gets what it would get among all, and what is sent is counted."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from paceline.comm.group import Reduction
from paceline.comm.solo import SoloGroup
from paceline.comm.stand_ins import StandInGroup
from paceline.errors import ConfigurationError
from thread_groups import thread_groups


def test_two_of_eight() -> None:
    groups = [StandInGroup(inner, 8) for inner in thread_groups(2)]

    def talk(group: StandInGroup) -> None:
        rank = group.rank
        assert (group.size, group.num_present) == (8, 2)
        rows, weights = group.all_reduce([np.array([8], np.int64), np.full(4, 0.5, np.float32)])
        assert rows.tolist() == [64]  # each of the eight has 8
        assert rows.dtype == np.int64
        assert weights.dtype == np.float32
        [largest] = group.all_reduce([np.array([rank])], Reduction.MAX)
        assert largest.tolist() == [1]
        assert [part.tolist() for part in group.all_gather(np.array([rank]))] == [[0], [1]] * 4
        [chiefs] = group.broadcast([np.array([rank])])
        assert chiefs.tolist() == [0]
        group.barrier()
        group.close()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(talk, groups))


def test_what_is_sent_is_counted_as_mpi_carries_it() -> None:
    group = StandInGroup(SoloGroup(), 4)
    group.all_reduce([np.zeros(3, np.float32), np.zeros(2, np.float32), np.zeros(5, np.int64)])
    assert (group.num_messages, group.reduced_bytes, group.gathered_bytes) == (2, 60, 0)
    group.all_reduce([np.zeros(8, np.float16)])  # travels as float32
    assert (group.num_messages, group.reduced_bytes) == (3, 92)
    assert len(group.all_gather(np.zeros(4, np.int16))) == 4
    assert (group.num_messages, group.gathered_bytes) == (5, 8)


def test_messages_to_ranks_that_are_missing_are_refused() -> None:
    group = StandInGroup(SoloGroup(), 4)
    for refused in (
        lambda: group.send(np.zeros(1), 1),
        lambda: group.recv([1], "float32", 1),
        lambda: group.split(0),
    ):
        with pytest.raises(ConfigurationError, match=r"\[predict\]"):
            refused()
