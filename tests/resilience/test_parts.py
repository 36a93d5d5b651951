"""A snapshot of any ranks, restored by any ranks, gives each what its scope promises."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ConfigurationError
from paceline.resilience.copy_buffers import CopyBuffers
from paceline.resilience.object_state import decode
from paceline.resilience.parts import Arrays, Layout, Part, Saved, Scope, capture
from paceline.resilience.restored_parts import SavedParts
from saved_parts import ALONE, layouts_of, restore, snapshot_of

GROUPS = st.lists(st.integers(1, 3), min_size=1, max_size=3)
"""How many ranks train each model."""


@dataclass
class Rank:
    """State of each scope."""

    shared: Any = None
    of_group: Any = None
    own: Any = None
    share: Any = None

    def parts(self) -> list[Part]:
        def part(name: str, scope: Scope) -> Part:
            def put_back(saved: Any) -> None:
                setattr(self, name, saved.value)

            return Part(name, scope, lambda arrays: arrays.value(getattr(self, name), "value"), put_back)

        scopes = {"shared": Scope.ALL, "of_group": Scope.GROUP, "own": Scope.RANK, "share": Scope.SUM}
        return [part(name, scope) for name, scope in scopes.items()]


def groups_of(sizes: list[int], interleaved: bool) -> list[list[int]]:
    """Ranks in groups of these sizes: one after the other, or dealt out in turn where all have the same size."""
    if interleaved and len(set(sizes)) == 1:
        return [[*range(index, sum(sizes), len(sizes))] for index in range(len(sizes))]
    begins = [sum(sizes[:index]) for index in range(len(sizes))]
    return [[*range(begin, begin + size)] for begin, size in zip(begins, sizes, strict=True)]


@given(GROUPS, st.data(), st.booleans(), st.booleans())
def test_each_scope_keeps_its_promise(sizes: list[int], data: Any, then_mixed: bool, now_mixed: bool) -> None:
    then = groups_of(sizes, then_mixed)
    now = groups_of([data.draw(st.integers(1, 3)) for _ in sizes], now_mixed)
    index_of = {rank: index for index, group in enumerate(then) for rank in group}
    ranks = [
        Rank(
            {"seed": 5, "weights": np.arange(3.0)},
            {"model": index_of[rank], "weights": np.full((2, 2), index_of[rank])},
            (rank, np.array([rank])),
            np.array([1 << rank, rank]),
        )
        for rank in range(sum(sizes))
    ]
    reader = snapshot_of([rank.parts() for rank in ranks], then)
    again = [Rank() for _ in layouts_of(now)]
    for rank, layout in zip(again, layouts_of(now), strict=True):
        restore(reader, rank.parts(), layout)
    for index, (before, after) in enumerate(zip(then, now, strict=True)):
        total = sum(again[rank].share for rank in after)
        np.testing.assert_array_equal(total, sum(ranks[rank].share for rank in before))
        for rank in after:
            source = rank if then == now else before[0]
            np.testing.assert_equal(again[rank].shared, ranks[0].shared)
            np.testing.assert_equal(again[rank].of_group, ranks[before[0]].of_group)
            assert again[rank].of_group["model"] == index
            np.testing.assert_equal(again[rank].own, ranks[source].own)
            if then == now:
                np.testing.assert_array_equal(again[rank].share, ranks[rank].share)


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3]], [[0, 2], [1, 3]]])
def test_one_rank_writes_what_ranks_have_in_common(groups: list[list[int]]) -> None:
    written = [capture(Rank(1, 2, 3, 4).parts(), layout).state.keys() for layout in layouts_of(groups)]
    everybody = {"own", "share"}
    assert [one - everybody for one in written] == [
        {"shared", "of_group"} if rank == 0 else {"of_group"} if rank == groups[1][0] else set() for rank in range(4)
    ]
    assert all(everybody <= one for one in written)


@given(st.integers(1, 4), st.integers(1, 4))
def test_pieces_are_for_everybody_who_wants_them(written_by: int, restored_by: int) -> None:
    """Also where they were cut at other places: each rank asks for what it has now."""

    def parts(names: range, found: dict[int, Any]) -> list[Part]:
        def captured(arrays: Arrays) -> Any:
            return {str(name): arrays.value(np.array([name]), str(name)) for name in names}

        def put_back(saved: Saved) -> None:
            for piece in saved.pieces:
                arrays = piece.read()
                wanted = {int(name): one for name, one in piece.state.items() if int(name) in names}
                found.update({name: decode(one, arrays) for name, one in wanted.items()})

        return [Part("pieces", Scope.PIECES, captured, put_back)]

    def cut(num_ranks: int) -> list[range]:
        return [range(12 * rank // num_ranks, 12 * (rank + 1) // num_ranks) for rank in range(num_ranks)]

    reader = snapshot_of([parts(names, {}) for names in cut(written_by)], [[*range(written_by)]])
    for names, layout in zip(cut(restored_by), layouts_of([[*range(restored_by)]]), strict=True):
        found: dict[int, Any] = {}
        restore(reader, parts(names, found), layout)
        np.testing.assert_equal(found, {name: np.array([name]) for name in names})


def test_another_number_of_models_is_refused() -> None:
    reader = snapshot_of([Rank(1, 2, 3, 4).parts()] * 4, [[0, 1], [2, 3]])
    with pytest.raises(ConfigurationError, match=r"is of 2 models, but this job trains 1\..*\[other-model\]"):
        SavedParts(reader, Layout(0, ((0, 1, 2, 3),)))


def test_what_is_missing_is_named_and_nothing_is_restored() -> None:
    reader = snapshot_of([Rank(1, 2, 3, 4).parts()])
    new: list[Any] = []
    parts = [*Rank().parts(), Part("newer", Scope.RANK, lambda _: None, new.append)]
    with pytest.raises(
        ConfigurationError,
        match="has no newer for rank 0 as the script registers it; it has of_group, own, share, shared",
    ):
        restore(reader, parts)
    assert new == []


def part(name: str, scope: Scope, restored: list[Any] | None = None, size: int = 1) -> Part:
    """Has a few arrays."""
    put = (lambda _: None) if restored is None else restored.append
    return Part(name, scope, lambda arrays: [arrays.value(np.ones(1), str(n)) for n in range(size)], put)


def test_what_is_missing_is_named_as_the_script_has_registered_it() -> None:
    """Parts have names of their own, which nobody has typed."""
    reader = snapshot_of([[part("v", Scope.GROUP), part(".random", Scope.RANK)]])
    with pytest.raises(ConfigurationError, match=r"has no loss for rank 0 as the script registers it; it has v\."):
        restore(reader, [part("loss.sums", Scope.SUM), part("loss.own", Scope.RANK), part(".random", Scope.RANK)])


def test_what_only_another_rank_has_is_missing() -> None:
    """It was a KeyError on one rank, while the other was restored."""
    groups, restored = [[0, 1]], list[Any]()
    reader = snapshot_of([[part("v", Scope.RANK), part("w", Scope.RANK)], [part("v", Scope.RANK)]], groups)
    one, other = layouts_of(groups)
    parts = [part("v", Scope.RANK, restored), part("w", Scope.RANK, restored)]
    with pytest.raises(ConfigurationError, match=r"has no w for rank 1 as the script registers it; it has v, w\."):
        restore(reader, parts, other)
    assert restored == []
    restore(reader, parts, one)
    assert len(restored) == 2


def test_a_total_in_which_a_rank_has_no_share_is_refused() -> None:
    reader = snapshot_of([[part("mean.sums", Scope.SUM, size=2)], [part("mean.sums", Scope.SUM, size=1)]])
    with pytest.raises(ConfigurationError, match=r"has no share of rank 1 in mean, .*Continue with 2 workers"):
        restore(reader, [part("mean.sums", Scope.SUM)])


def test_two_parts_of_one_name_are_refused() -> None:
    """The second one took the place of the first in the snapshot."""
    with pytest.raises(ValueError, match="two parts of a snapshot are called v"):
        capture([part("v", Scope.GROUP), part("v", Scope.RANK)], ALONE)


def test_a_part_that_refuses_has_no_other_restored() -> None:
    rank, reader = Rank(), snapshot_of([Rank(1, 2, 3, 4).parts()])

    def refuse(saved: Any) -> None:
        raise ConfigurationError("another one")

    *others, last = rank.parts()
    with pytest.raises(ConfigurationError, match="another one"):
        restore(reader, [*others, Part(last.name, last.scope, last.capture, last.restore, refuse)])
    assert rank == Rank()


def test_what_was_settled_does_not_change_with_its_owner() -> None:
    """A snapshot of before a validation is written after it."""
    weights = np.zeros(3)
    captured = capture([Part("w", Scope.RANK, lambda arrays: arrays.value(weights), lambda _: None)], ALONE)
    captured.settle()
    weights += 1
    np.testing.assert_array_equal(captured.copied(CopyBuffers()).tensors["w"], np.zeros(3))
