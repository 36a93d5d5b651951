"""A second `fit`, `evaluate` or `predict`, on one worker and on several."""

from pathlib import Path

import pytest

from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600), pytest.mark.xdist_group("together")]

SCRIPT = Path(__file__).parent / "second_call_jobs.py"


@pytest.mark.parametrize("size", [1, 2])
def test_a_model_that_was_loaded_from_its_file_trains_on(worlds: Worlds, size: int) -> None:
    [plain] = worlds.plain.run(SCRIPT, "a_loaded_model_trains_on").told
    got = worlds.of(size).run(SCRIPT, "a_loaded_model_trains_on").same
    assert got["iterations"] == plain["iterations"] == 16
    assert got["losses"] == pytest.approx(plain["losses"], rel=1e-5)


@pytest.mark.parametrize("size", [1, 2])
def test_each_call_begins_one_batch_behind_those_that_the_call_before_has_used(worlds: Worlds, size: int) -> None:
    # Plain Keras does so in most runs: its thread may have read one more.
    got = worlds.of(size).run(SCRIPT, "one_generator_is_predicted_and_evaluated_from").same
    assert got["predicted"] == [[first + number for number in range(5)] for first in (0.0, 6.0, 12.0)]
    assert got["sums"] == pytest.approx([100.0, 130.0, 160.0])
    assert got["next"] == 36.0
