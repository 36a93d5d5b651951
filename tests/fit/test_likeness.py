"""The rows on which a step is verified, and what is more than rounding."""

import numpy as np
import pytest

from paceline.fit.likeness import ROUNDINGS, Number, disturbed, first_difference, rows_given, uneven_parts

FLOAT32 = ROUNDINGS["float32"]


@pytest.mark.parametrize(
    ("counts", "wanted", "given"),
    [
        ([4, 4], 5, [3, 2]),
        ([1, 9], 5, [1, 4]),
        ([0, 9, 0], 7, [0, 7, 0]),
        ([1, 1, 0], 7, [1, 1, 0]),
        ([3, 3, 3], 7, [3, 2, 2]),
    ],
)
def test_ranks_give_rows_as_evenly_as_they_have_them(counts: list[int], wanted: int, given: list[int]) -> None:
    assert rows_given(counts, wanted) == given


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("total", [0, 1, 2, 3, 5, 9, 17, 18])
def test_parts_are_uneven(total: int, size: int) -> None:
    parts = uneven_parts(total, size)
    assert (sum(parts), len(parts)) == (total, size)
    assert min(parts) >= 0
    assert size < 3 or parts[1] == 0
    assert size == 1 or total in (0, 2) or len(set(parts)) > 1
    assert size == 1 or total < 2 or max(parts) < total, "a rank that has all rows would hide a wrong division"


def _one(found: object, expected: object, before: object = None, noisy: object = None) -> str:
    one, like = np.asarray(found), np.asarray(expected)
    number = Number("it", like, None if before is None else np.asarray(before, like.dtype))
    return first_difference([one], [number], FLOAT32, [] if noisy is None else [[np.asarray(noisy)]])


def test_rounding_is_no_difference() -> None:
    value = np.linspace(-1, 1, 11, dtype=np.float32)
    assert not _one(value * np.float32(1 + 1e-6), value)
    assert _one(value * np.float32(1 + 1e-2), value).startswith("it (")


def test_a_variable_is_compared_by_its_change() -> None:
    before = np.float32([1.0, 1.0])
    after = before + np.float32([1e-3, 2e-3])
    assert _one(before + np.float32([1e-3, 1e-3]), after, before)
    assert not _one(before + np.float32([1e-3, 2.0001e-3]), after, before)


def test_what_a_rounding_changes_as_much_is_no_difference() -> None:
    """Adam's first step of a gradient that is nothing but rounding."""
    after, found, noisy = np.float32([0.01, -0.01]), np.float32([-0.01, 0.01]), np.float32([0.01, 0.008])
    assert _one(found, after, np.zeros(2))
    assert not _one(found, after, np.zeros(2), noisy)


def test_what_is_no_number_must_be_none_in_both() -> None:
    assert not _one(np.float32([np.nan, np.inf, 1]), np.float32([np.nan, np.inf, 1]))
    assert _one(np.float32([np.nan, 1]), np.float32([1, 1]))
    assert _one(np.float32([np.inf]), np.float32([-np.inf]))
    assert _one(np.float32([1]), np.float32([np.inf]))


def test_integers_texts_and_shapes_must_be_equal() -> None:
    assert not _one([1, 2], [1, 2])
    assert _one([1, 3], [1, 2]) == "it (3 in place of 2)"
    assert _one([True], [False]) == "it (another flag)"
    assert _one([b"a"], [b"b"]) == "it (another text)"
    assert _one(np.zeros(2), np.zeros(3)) == "it (of shape (2,) in place of (3,))"


def test_a_disturbed_number_is_one_rounding_away() -> None:
    value = np.float32([1, 2, 0, -3])
    changed = disturbed(value, FLOAT32, 1)
    np.testing.assert_allclose(changed, value, rtol=2 * FLOAT32)
    assert (changed != value).sum() == 3
    assert disturbed(np.arange(3), FLOAT32, 1) is not None
