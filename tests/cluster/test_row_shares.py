"""``--shares``: which texts are taken, and where."""

import pytest

from paceline.cluster.row_shares import check_number, parsed, refuse_shares
from paceline.errors import ConfigurationError


@pytest.mark.parametrize(("text", "shares"), [(None, ()), ("", ()), ("1,1,1", ()), ("3,1", (3, 1)), ("0,2", (0, 2))])
def test_equal_shares_are_none(text: str | None, shares: tuple[int, ...]) -> None:
    assert parsed(text) == shares


def test_each_worker_needs_a_share() -> None:
    check_number(2, 2)
    with pytest.raises(
        ConfigurationError, match=r"has 2 numbers, but the job has 3 workers.*--shares 1,1,1 \[shares\]"
    ):
        check_number(2, 3)


def test_strategies_that_divide_no_batch_refuse_them() -> None:
    refuse_shares("PipelineStrategy", {})
    with pytest.raises(ConfigurationError, match=r"under PipelineStrategy .* \[shares\]"):
        refuse_shares("PipelineStrategy", {"PACELINE_SHARES": "3,1"})
