"""What a message costs: all ranks get what the slowest has measured."""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

from paceline.comm.solo import SoloGroup
from paceline.pipeline.link_cost import link_of
from paceline.plan.costs import Link
from thread_groups import ThreadGroup, thread_groups


def test_all_ranks_get_what_the_slowest_has_measured() -> None:
    def of_rank(group: ThreadGroup) -> Link:
        ticks = itertools.count(step=group.rank + 1)  # any message takes so many seconds
        return link_of(group, lambda: float(next(ticks)))

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(of_rank, thread_groups(3, timeout_seconds=60)))
    assert found == [Link(3.0, math.inf)] * 3


def test_more_bytes_take_longer() -> None:
    def of_rank(group: ThreadGroup) -> Link:
        messages = [1.0] * 15 + [3.0] * 15
        ticks = itertools.accumulate(itertools.chain.from_iterable((0.0, seconds) for seconds in messages))
        return link_of(group, lambda: next(ticks))

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(of_rank, thread_groups(2, timeout_seconds=60))
    assert one == other
    assert math.isclose(one.seconds(64), 1.0, rel_tol=1e-3)
    assert math.isclose(one.seconds(2**21), 3.0, rel_tol=1e-4)


def test_one_rank_sends_nothing() -> None:
    assert link_of(SoloGroup()) == Link()
