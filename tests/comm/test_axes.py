"""The groups of a process: all ranks, and those along an axis."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from paceline.comm.axes import Axes
from paceline.comm.solo import SoloGroup
from paceline.rendezvous.channel import ALL_RANKS, Whereabouts
from thread_groups import thread_groups


def on_each_rank(size: int, function: Callable[[Axes], Any]) -> list[Any]:
    def run(group: Any) -> Any:
        return function(Axes(group.rank, size, lambda: group, lambda: None))

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, thread_groups(size)))


def test_replicas_are_all_ranks_unless_somebody_arranges_them_otherwise():
    axes = Axes(0, 1, SoloGroup, lambda: None)
    assert axes.along("data") is axes.all_ranks()
    with pytest.raises(KeyError):
        axes.along("stage")


def test_a_group_is_formed_with_all_others_whoever_needs_it_first():
    """Ranks 0 to 2 first use an axis, ranks 3 to 5 the group of all: nobody meets anybody in the wrong group."""

    def job(axes: Axes) -> Any:
        axes.arrange({"stage": 2, "data": 3})
        data, stage, everyone = axes.along("data"), axes.along("stage"), axes.all_ranks()
        mine = np.array([everyone.rank])
        assert not axes.formed
        for group in (data, everyone) if everyone.rank < 3 else (everyone, data):
            group.all_gather(mine)
        assert axes.formed
        return [np.concatenate(group.all_gather(mine)).tolist() for group in (data, stage)]

    assert on_each_rank(6, job) == [[[*line], [rank % 3, rank % 3 + 3]] for line, rank in _lines_of_three()]


def _lines_of_three() -> list[tuple[range, int]]:
    return [(range(rank // 3 * 3, rank // 3 * 3 + 3), rank) for rank in range(6)]


def test_axes_that_do_not_fit_are_refused():
    axes = Axes(0, 6, lambda: pytest.fail("nobody talks here"), lambda: None)
    for wrong in ({"data": 5}, {"stage": 6}, {"stage": -2, "data": -3}):
        with pytest.raises(ValueError, match="whose product is 6"):
            axes.arrange(wrong)


def test_when_ranks_talk_it_is_too_late_to_arrange_them():
    axes = Axes(0, 1, SoloGroup, lambda: None)
    axes.all_ranks().barrier()
    with pytest.raises(RuntimeError, match="too late"):
        axes.arrange({"stage": 1, "data": 1})


def test_collectives_are_counted_for_each_group():
    def job(axes: Axes) -> Whereabouts:
        axes.arrange({"stage": 2, "data": 2})
        assert axes.whereabouts() == Whereabouts({ALL_RANKS: 0}, "", "")
        for _ in range(3):
            axes.along("data").barrier()
        axes.all_ranks().barrier()
        part = axes.all_ranks().split(axes.all_ranks().rank % 2)
        assert part is not None
        part.barrier()
        where = axes.whereabouts()
        part.close()
        assert len(axes.whereabouts().entered) == 2
        return where

    found = on_each_rank(4, job)
    for rank, where in enumerate(found):
        data, part = f"axis data from rank {rank // 2 * 2}", f"{ALL_RANKS}/1.{rank % 2}"
        assert where == Whereabouts({ALL_RANKS: 2, data: 3, part: 1}, "", "")


def test_a_rank_that_waits_for_a_message_names_its_sender():
    """It was said to be in no collective, so a pipeline whose first stage hung was blamed on nobody."""
    everyones: dict[int, Axes] = {}

    def job(axes: Axes) -> Whereabouts | None:
        group = axes.all_ranks()
        part = group.split(0, key=-group.rank)  # rank 1 is first in it
        assert part is not None
        everyones[group.rank] = axes
        group.barrier()
        if group.rank == 0:
            assert part.recv((1,), "float32", source=0, tag=7).wait() == 5
            return axes.whereabouts()
        deadline = time.monotonic() + 30
        while (where := everyones[0].whereabouts()).awaited is None:
            assert time.monotonic() < deadline
        part.send(np.array([5], "float32"), to=1, tag=7).wait()
        return where

    after, during = on_each_rank(2, job)
    part = f"{ALL_RANKS}/1.0"
    assert during == Whereabouts({ALL_RANKS: 2, part: 0}, part, "recv with tag 7", 1)
    assert after == Whereabouts({ALL_RANKS: 2, part: 0}, "", "")


def test_the_group_that_a_rank_waits_in_is_named():
    def job(axes: Axes) -> Whereabouts | None:
        axes.arrange({"stage": 2, "data": 1})
        seen: list[Whereabouts] = []
        inner = axes.all_ranks().inner
        barrier = inner.barrier
        inner.barrier = lambda: (seen.append(axes.whereabouts()), barrier())  # type: ignore[method-assign, assignment, func-returns-value]
        axes.all_ranks().barrier()
        return seen[0]

    for where in on_each_rank(2, job):
        assert where == Whereabouts({ALL_RANKS: 1}, ALL_RANKS, "barrier")


def test_each_rank_knows_all_the_lines_of_an_axis():
    axes = Axes(3, 4, SoloGroup, lambda: None)
    assert axes.lines("data") == ((0, 1, 2, 3),)
    axes.arrange({"stage": 2, "data": 2})
    assert (axes.lines("data"), axes.lines("stage")) == (((0, 1), (2, 3)), ((0, 2), (1, 3)))
