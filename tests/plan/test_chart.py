"""The drawings of the papers."""

from drawn_plans import equal_costs

from paceline.plan.chart import chart
from paceline.plan.costs import ChunkCost, Costs
from paceline.plan.planning import Outline
from paceline.plan.schedules import schedule_named
from paceline.plan.simulation import simulate


def _drawn(name: str, stages: int, micro_batches: int, max_columns: int = 160) -> str:
    outline = Outline(schedule_named(name), stages, micro_batches)
    return "\n" + chart(simulate(outline, equal_costs(outline.shape.num_chunks)), max_columns) + "\n"


def test_gpipe() -> None:
    assert (
        _drawn("gpipe", 3, 3)
        == """
stage 0  F0 F1 F2                   B0--- B1--- B2---
stage 1     F0 F1 F2          B0--- B1--- B2---
stage 2        F0 F1 F2 B0--- B1--- B2---
"""
    )


def test_1f1b() -> None:
    assert (
        _drawn("1f1b", 3, 4)
        == """
stage 0  F0 F1 F2             B0--- F3 B1---    B2---    B3---
stage 1     F0 F1       B0--- F2 B1--- F3 B2---    B3---
stage 2        F0 B0--- F1 B1--- F2 B2--- F3 B3---
"""
    )


def test_zb_h1() -> None:
    assert (
        _drawn("zb_h1", 3, 5)
        == """
stage 0  F0 F1 F2       B0 W0 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4
stage 1     F0 F1    B0 F2 B1 W0 F3 B2 W1 F4 B3 W2 B4 W3 W4
stage 2        F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 F4 B4 W2 W3 W4
"""
    )


def test_chunks_have_letters() -> None:
    assert (
        _drawn("zb_v", 2, 3)
        == """
stage 0  F0a F1a F2a F0b B0b W0b F1b B1b W1b B0a W0a F2b B2b W2b B1a W1a B2a W2a
stage 1      F0a F0b F1a F1b B0b W0b F2a B0a W0a F2b B1b W1b B1a B2b B2a W1a W2b W2a
"""
    )


def test_a_long_chart_ends_with_dots() -> None:
    lines = _drawn("gpipe", 2, 60, max_columns=60).split("\n")[1:3]
    assert [len(line) for line in lines] == [60, 60]
    assert all(line.endswith(" ...") for line in lines)


def test_columns_are_to_scale_and_updates_are_seen() -> None:
    outline = Outline(schedule_named("1f1b"), 2, 1)
    slow, fast = ChunkCost(2, 2, 2, update_seconds=2), ChunkCost(1, 1, 1, update_seconds=1)
    assert chart(simulate(outline, Costs((slow, fast)))).split("\n") == [
        "stage 0  F0---          B0--------- =----",
        "stage 1        F0 B0--- =-",
    ]
