"""Which weights the chief names at the end of a `fit`; what all ranks assign is in the parity matrix."""

import pytest

from paceline.fit.assignments import differing


@pytest.mark.parametrize(
    ("of_ranks", "named"),
    [
        ([[1, 2], [1, 2]], []),
        ([[1, 2], [1, 3]], ["total"]),
        ([[1, 2], [1, 2], [4, 2]], ["mean"]),
        ([[1, 2], [3, 4]], ["mean", "total"]),
        ([[1, 2], [7]], []),
    ],
)
def test_a_weight_is_named_if_any_rank_has_another_value(of_ranks: list[list[int]], named: list[str]) -> None:
    assert differing(["mean", "total"], of_ranks) == named
