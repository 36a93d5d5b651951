"""A model that contracts the rows of a batch trained to other numbers than one worker's, and nobody said so."""

from pathlib import Path

import pytest

from programs import run_workers

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("options", [(), pytest.param(("twice",), marks=pytest.mark.proof)])
def test_a_number_of_all_rows_in_the_predictions_is_told_of_once(options: tuple[str, ...], tmp_path: Path) -> None:
    script = Path(__file__).with_name("whole_batches.py")
    ended = run_workers(2, script, *options, folder=tmp_path, limit_seconds=280)
    assert ended.code == 0, ended.output
    lines = [line for line in ended.lines("[0] ") if "[whole-batch]" in line or line.endswith(" trained")]
    places = [index for index, line in enumerate(lines) if "[whole-batch]" in line]
    before = 3 + len(options)
    assert places == [before], ended.output  # after the models that are usual or of rows, and in the first of batches
    assert len(lines) == before + 3
    assert "keras.ops.sum(a * b, axis=-1, keepdims=True)" in lines[before]
    assert ended.output.count("[whole-batch]") == 1
