"""Data that lack a batch, or all, are told of on all ranks: nobody waits, and nothing passes without a word."""

from pathlib import Path

import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "missing_data_jobs.py"


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("fit", "plain"),
        pytest.param("fit", "drawing", marks=pytest.mark.proof),
        pytest.param("evaluate", "plain", marks=pytest.mark.proof),
        ("evaluate", "one worker"),
    ],
)
def test_an_item_that_is_none_is_named_on_all_ranks(worlds: Worlds, method: str, kind: str) -> None:
    """Keras's enqueuer passed over the item, so the rank that makes it had one less, and the others waited for ever.

    Of items that draw random numbers one rank makes all, with Keras's own enqueuer. With one worker, Keras did not say
    which item it was.
    """
    for told in worlds.of(2).run(SCRIPT, "a_missing_item", method, kind, limit_seconds=60.0).told:
        assert "item 5 of the PyDataset is None" in told
        assert "[missing-item]" in told


def test_data_without_a_batch_are_told_of(worlds: Worlds) -> None:
    """`fit` took Keras's warning away wherever data of unknown length end, also before the first batch."""
    for told in worlds.of(2).run(SCRIPT, "no_batch").told:
        assert len(told) == 3
        assert all(text.endswith("[no-data]") for text in told)


@pytest.mark.parametrize(("method", "steps"), [("fit", 2), pytest.param("evaluate", 0, marks=pytest.mark.proof)])
def test_data_that_end_within_the_first_execution_on_some_ranks_are_not_no_data(
    worlds: Worlds, method: str, steps: int
) -> None:
    """An execution of several steps that some rank's data cut short on all ranks was taken for one without a step."""
    for told in worlds.of(2).run(SCRIPT, "ends_within_the_first_execution", method, limit_seconds=60.0).told:
        assert told == [steps, []]
