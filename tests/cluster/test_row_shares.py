"""``--shares``: which texts are taken, and where."""

import pytest

from paceline.cluster.row_shares import check_number, check_text, parsed, refuse_shares, text_in
from paceline.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "shares"), [(None, ()), ("", ()), ("1,1,1", ()), ("3,1", (3, 1)), ("0,2", (0, 2)), ("auto", ())]
)
def test_equal_shares_are_none(text: str | None, shares: tuple[int, ...]) -> None:
    assert parsed(text) == shares


def test_each_worker_needs_a_share() -> None:
    check_number(2, 2)
    check_text("auto", 5)
    with pytest.raises(
        ConfigurationError, match=r"has 2 numbers, but the job has 3 workers.*--shares 1,1,1 \[shares\]"
    ):
        check_number(2, 3)


def test_strategies_that_divide_no_batch_refuse_them() -> None:
    refuse_shares("PipelineStrategy", {})
    with pytest.raises(ConfigurationError, match=r"under PipelineStrategy .* \[shares\]"):
        refuse_shares("PipelineStrategy", {"PACELINE_SHARES": "3,1"})
    with pytest.raises(ConfigurationError, match=r"\[shares\]"):
        refuse_shares("PipelineStrategy", {"PACELINE_SHARES": "auto"})


@pytest.mark.parametrize(("given", "text"), [("2,2", ""), ("02,1", "2,1"), ("auto", "auto")])
def test_one_text_stands_for_the_same_shares(given: str, text: str) -> None:
    assert text_in({"PACELINE_SHARES": given}) == text
