"""``--shares``: each row of a batch is computed by one worker, and each worker has its share of every batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.row_shares import begins, check_number, parsed, refuse_shares
from paceline.errors import ConfigurationError


@pytest.mark.parametrize(("text", "shares"), [(None, ()), ("", ()), ("1,1,1", ()), ("3,1", (3, 1)), ("0,2", (0, 2))])
def test_equal_shares_are_none(text: str | None, shares: tuple[int, ...]) -> None:
    assert parsed(text) == shares


@given(st.lists(st.integers(0, 9), min_size=2, max_size=6).filter(any), st.integers(0, 1000))
def test_every_row_is_in_one_slice_and_slices_are_as_large_as_shares(shares: list[int], rows: int) -> None:
    first = begins(shares)
    edges = [rows * begin // first[-1] for begin in first]
    assert edges[0] == 0
    assert edges[-1] == rows
    assert edges == sorted(edges)
    for rank, share in enumerate(shares):
        assert abs(edges[rank + 1] - edges[rank] - rows * share / first[-1]) < 1


def test_each_worker_needs_a_share() -> None:
    check_number("3,1", 2)
    check_number(None, 5)
    with pytest.raises(
        ConfigurationError, match=r"has 2 numbers, but the job has 3 workers.*--shares 1,1,1 \[shares\]"
    ):
        check_number("3,1", 3)


def test_strategies_that_divide_no_batch_refuse_them() -> None:
    refuse_shares("PipelineStrategy", {})
    with pytest.raises(ConfigurationError, match=r"under PipelineStrategy .* \[shares\]"):
        refuse_shares("PipelineStrategy", {"PACELINE_SHARES": "3,1"})
