"""Data read by the numbers of its rows: N workers compute what one does. The cases are in `sources_jobs.py`."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import EXIT_FAILED
from programs import run_workers
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

LIMIT_SECONDS = 200.0
SCRIPT = Path(__file__).parent / "sources_jobs.py"


def assert_close(some: dict[str, Any], others: dict[str, Any]) -> None:
    assert some.keys() == others.keys()
    for name, values in others.items():
        for one, other in zip(*(v if name == "weights" else [v] for v in (some[name], values)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("case", "size"),
    [
        ("records_with_augmentation_and_class_weights", 2),
        pytest.param("rows_repeated_with_steps", 2, marks=pytest.mark.proof),
        ("rows_that_leave_ranks_without_any", 2),
        pytest.param("rows_that_leave_ranks_without_any", 3, marks=pytest.mark.proof),
    ],
)
def test_workers_compute_what_one_computes(worlds: Worlds, case: str, size: int) -> None:
    [alone] = worlds.not_launched.run(SCRIPT, case).told
    assert_close(worlds.of(size).run(SCRIPT, case).same, alone)


def test_compressed_files_are_dealt_whole(worlds: Worlds) -> None:
    [alone] = worlds.not_launched.run(SCRIPT, "compressed_files_of_other_lengths").told
    done = worlds.of(2).run(SCRIPT, "compressed_files_of_other_lengths")
    np.testing.assert_allclose(done.same["evaluated"], alone["evaluated"], rtol=1e-9)  # each row once


@pytest.mark.parametrize("size", [2])
def test_batches_of_grain_are_cut_before_the_batch(worlds: Worlds, size: int) -> None:
    pytest.importorskip("grain")
    [alone] = worlds.not_launched.run(SCRIPT, "batches_of_grain").told
    assert_close(worlds.of(size).run(SCRIPT, "batches_of_grain").same, alone)
    asked = [told["asked"] for told in worlds.of(size).run(SCRIPT, "rows_of_grain_that_are_asked_for").told]
    # In two epochs, and those that are looked at: the rows of the first batch twice, the first row and the last one.
    assert sum(asked) == 2 * 34 + size * (2 * 17 + 2)


def test_sources_that_differ_are_refused_with_both(worlds: Worlds) -> None:
    told = worlds.of(2).run(SCRIPT, "sources_that_differ").same
    assert told["same"] == "no error"
    is_said = "source of the data: {} on rank 0, {} on rank 1".format
    assert is_said("1.tfrecord: 1760 bytes, 20 records", "1.tfrecord: 1848 bytes, 21 records") in told["file"]
    assert is_said("1.tfrecord: 1760 bytes, 20 records", "2.tfrecord: 440 bytes, 5 records") in told["order"]
    order = "shuffle=True, seed={}, batch_size=5, drop_remainder=False".format
    assert is_said(order(6), order(7)) in told["seed"]
    assert re.search(r"source of the data: \w{16} on rank 0, \w{16} on rank 1", told["rows"])
    assert all(text.endswith("[ranks-differ]") for name, text in told.items() if name != "same")


RAISES = """
import keras, numpy as np, paceline.data

class Table:
    def __len__(self):
        return 64

    def __getitem__(self, row):
        if row == 30:
            raise KeyError(f"row {row} is broken")
        return np.ones(3), 1.0

model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(paceline.data.rows(Table(), 8), verbose=0)
"""


@pytest.mark.proof
def test_an_exception_in_a_row_is_shown_as_it_was_raised_and_ends_the_job(tmp_path: Path) -> None:
    script = tmp_path / "raises.py"
    script.write_text(RAISES)
    ended = run_workers(2, script, folder=tmp_path, limit_seconds=LIMIT_SECONDS)
    assert ended.code == EXIT_FAILED, ended.output
    assert ended.output.count("KeyError: 'row 30 is broken'") >= 1
    assert 'raise KeyError(f"row {row} is broken")' in ended.output
    assert "raises.py" in ended.output
    assert "IteratorGetNext" not in ended.output
