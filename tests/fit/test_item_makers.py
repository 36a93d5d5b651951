"""Items of a `PyDataset` that some ranks make: steps have one worker's rows, bit by bit."""

from pathlib import Path
from typing import Any

import pytest

from paceline.errors import EXIT_FAILED
from programs import run_workers
from worlds import Worlds

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900), pytest.mark.xdist_group("together")]

LIMIT_SECONDS = 200.0
SCRIPT = Path(__file__).parent / "item_jobs.py"


CASES = (
    "pairs",
    "pairs_with_threads",
    "dictionaries_with_weights",
    "lists_and_class_weights",
    "numbers_drawn_in_items",
    "numbers_drawn_in_late_items",
    "other_calls",
    "endless_items",
    "stopped_in_the_middle_of_an_epoch",
    "an_exception_that_the_script_catches",
)


IN_EVERY_CHECK = ("pairs_with_threads", "numbers_drawn_in_items", "stopped_in_the_middle_of_an_epoch")
"""Items without a state and with one, and an epoch that does not come to its end."""


def _cases() -> list[Any]:
    proof = pytest.mark.proof
    return [
        *(pytest.param(case, 2, marks=() if case in IN_EVERY_CHECK else proof) for case in CASES),
        *(pytest.param(case, size, marks=proof) for size in (3, 4) for case in CASES),
        *(pytest.param("pairs_with_processes", size, marks=proof) for size in (2, 3, 4)),
    ]


@pytest.mark.parametrize(("case", "size"), _cases())
def test_ranks_see_the_rows_of_one_worker(worlds: Worlds, case: str, size: int) -> None:
    [alone] = worlds.not_launched.run(SCRIPT, case).told
    told = worlds.of(size).run(SCRIPT, case).told
    for rank in told:
        assert rank["seen"] == alone["seen"]
        assert rank["same"] == told[0]["same"]
    assert told[0]["same"].get("next") == alone["same"].get("next")
    assert told[0]["same"].get("order") == alone["same"].get("order")


@pytest.mark.proof
def test_what_items_leave_behind_is_what_they_leave_behind_in_one_worker(worlds: Worlds) -> None:
    """Random numbers drawn in threads, and an object that items change, which orders the rows of the next epoch."""
    for case in ("numbers_drawn_in_threads", "items_that_change_the_object"):
        [alone] = worlds.not_launched.run(SCRIPT, case).told
        for rank in worlds.of(2).run(SCRIPT, case).told:
            if case == "numbers_drawn_in_threads":
                assert [rank["same"][name] for name in ("order", "next")] == [
                    alone["same"][name] for name in ("order", "next")
                ]
            else:
                assert rank["same"][1::2] == alone["same"][1::2]


@pytest.mark.proof
def test_steps_that_are_fewer_than_the_items_go_on_in_the_next_epoch(worlds: Worlds) -> None:
    [alone] = worlds.not_launched.run(SCRIPT, "fewer_steps_than_items").told
    told = worlds.of(2).run(SCRIPT, "fewer_steps_than_items").told
    assert all(rank["seen"] == alone["seen"] for rank in told)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.proof)])
def test_an_item_is_made_once_on_a_host(worlds: Worlds, size: int, tmp_path: Path) -> None:
    told = worlds.of(size).run(SCRIPT, "executions", str(tmp_path)).told
    assert [rank["one"] for rank in told] == [150, *[0] * (size - 1)]
    assert sum(rank["threads"] for rank in told) <= 1.05 * 150
    assert min(rank["threads"] for rank in told) >= 150 // size


def test_ranks_that_would_make_other_items_are_refused(worlds: Worlds) -> None:
    said = worlds.of(2).run(SCRIPT, "other_items_on_the_last_rank").same
    assert "the first global batch of an epoch differs between rank 0 and rank(s) 1" in said
    assert said.endswith("[data-differs]")


def test_a_generator_is_read_once_on_a_host_by_whoever_reads_it(worlds: Worlds) -> None:
    chief, other = worlds.of(2).run(SCRIPT, "a_generator_read_once_on_a_host").told
    assert chief["calls"] == [*range(9)]
    assert other["calls"] == []
    assert chief["same"] == other["same"]
    assert "division" in chief["same"]["error"]
    assert chief["seen"] == other["seen"]
    numbers = [batch[1] for batch in chief["seen"]]
    assert numbers == [[float(number)] * 5 for number in range(1, 5)]
    assert chief["same"]["between"][1] == [6.0] * 5, "5 has been read ahead"
    assert chief["same"]["rest"] == 10


RAISES = """
import keras, numpy as np

class Table(keras.utils.PyDataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 7:
            raise KeyError(f"item {index} is broken")
        return np.ones((4, 3)), np.ones(4)

model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(Table(workers=2), verbose=0, shuffle=False)
"""


@pytest.mark.proof
def test_an_exception_in_an_item_ends_the_job_and_is_shown_once(tmp_path: Path) -> None:
    """By the rank that makes the item: with two ranks, the second one makes those of odd numbers."""
    script = tmp_path / "raises.py"
    script.write_text(RAISES)
    ended = run_workers(2, script, folder=tmp_path, limit_seconds=LIMIT_SECONDS)
    assert ended.code == EXIT_FAILED, ended.output
    assert ended.output.count("Traceback") == 1, ended.output
    assert 'raise KeyError(f"item {index} is broken")' in ended.output
    assert "paceline: rank 1 (" in ended.output.splitlines()[-1], ended.output
    assert "ran out of data" not in ended.output
