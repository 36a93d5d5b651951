"""What two stages refuse is told on all ranks."""

from pathlib import Path

import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("parity")]

_SCRIPT = Path(__file__).with_name("refused_cases.py")


def test_a_model_outside_of_the_scope_is_not_trained(worlds: Worlds) -> None:
    """Beside a pipeline, a `fit` under no strategy passed: each worker trained the whole model without a word."""
    for told in worlds.of(2, in_stages=True).run(_SCRIPT, "made_outside_of_the_scope").same:
        assert told.startswith("ConfigurationError: This model was made outside of the PipelineStrategy's scope")
        assert "each of the 2 workers would train the whole model" in told
        assert told.endswith("[outside-scope]")


def test_what_one_rank_raises_where_functions_are_made_is_raised_on_all(worlds: Worlds) -> None:
    """Only a refusal was handed to the others: they read what the rank did next, one collective late for ever."""
    others, own = worlds.of(2, in_stages=True).run(_SCRIPT, "raises_on_one_rank").told
    assert others.pop("losses") == own.pop("losses")
    for method, raised in own.items():
        for error, told in zip(raised, others[method], strict=True):
            assert error.startswith("ValueError: ")
            assert "this layer gives up: \N{SNOWMAN}" in error
            assert told.startswith("RuntimeError: rank 1 ")
            assert "ValueError: " in told
            assert "this layer gives up: \N{SNOWMAN}" in told
            assert "(refused_cases.py:" in told
            assert told.endswith("[stage-failed]")


@pytest.mark.proof
def test_what_one_rank_raises_at_a_later_shape_of_data_is_raised_on_all(worlds: Worlds) -> None:
    """Stages that do not wait for each other made the functions of a new shape at different times, each for itself."""
    told = worlds.of(2, in_stages=True).run(_SCRIPT, "raises_at_a_later_shape").told
    for rank, found in enumerate(told):
        assert len(found) == 6
        for fails_on, error, losses, expected in found:
            assert error.startswith("ValueError: " if fails_on == rank else f"RuntimeError: rank {fails_on} "), error
            assert "this model gives up: \N{SNOWMAN}" in error
            assert fails_on == rank or error.endswith("[stage-failed]")
            assert losses == expected
    assert [one[2] for one in told[0]] == [one[2] for one in told[1]]


def test_what_one_rank_raises_where_layers_are_measured_is_raised_on_all(worlds: Worlds) -> None:
    """Ranks share the layers that `balance="auto"` measures: the others waited for the costs of one that had raised."""
    told = worlds.of(2, in_stages=True).run(_SCRIPT, "raises_where_layers_are_measured").told
    firsts, seconds = zip(*told, strict=True)
    assert sorted(first.split(":")[0] for first in firsts) == ["RuntimeError", "ValueError"], firsts
    assert all("this layer gives up: \N{SNOWMAN}" in first for first in firsts)
    assert [*seconds] == ["", ""]
