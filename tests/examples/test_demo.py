"""The demo's plan, figures and caption, from made-up results."""

import importlib.util
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    specification = importlib.util.spec_from_file_location("demo", DEMO)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "demo", module)
    specification.loader.exec_module(module)
    return module


def result(seconds: list[float], weight: float = 0.5) -> dict[str, np.ndarray]:
    return {
        "arr_0": np.array([weight, -1.0], "float32"),
        "arr_1": np.zeros((2, 2), "float32"),
        "epoch_seconds": np.array(seconds),
        "val_accuracy": np.array([0.9, 0.95]),
    }


def outcomes(demo: ModuleType, second_weight: float = 0.5625, weight_after_kill: float = 0.5625) -> list:
    plain, one, spread, killed, wide = demo.planned_runs([0, 1])
    return [
        demo.outcome_of(plain, [result([9.0, 4.0, 4.5])]),
        demo.outcome_of(one, [result([9.0, 3.0, 3.5])]),
        demo.outcome_of(spread, [result([9.0, 2.0, 2.5], 0.5625), result([9.0, 2.25, 2.0], second_weight)], 20.0),
        demo.outcome_of(killed, [result([9.0, 8.0, 2.5], weight_after_kill)] * 2, 28.0),
        demo.outcome_of(wide, [result([9.0, 2.0, 2.0])]),
    ]


def test_the_plain_run_has_the_cores_of_one_of_the_two_workers(demo: ModuleType) -> None:
    plain, one, spread, killed, wide = demo.planned_runs([4, 5, 6, 7])
    assert (plain.cores, one.cores) == ((4, 5), (4, 5))
    assert (spread.cores, killed.cores, wide.cores) == ((4, 5, 6, 7),) * 3
    assert "paceline" not in plain.command
    assert plain.command == wide.command
    assert spread.command[-1] == plain.command[-1]


def test_a_single_core_is_shared_and_the_caption_says_so(demo: ModuleType) -> None:
    runs = demo.planned_runs([3])
    assert {run.cores for run in runs} == {(3,)}
    seen = [demo.outcome_of(run, [result([1.0, 1.0])]) for run in runs]
    assert "2 workers share it" in demo.caption_of(seen)


def test_the_first_epoch_is_left_out_and_the_slowest_worker_counts(demo: ModuleType) -> None:
    plain, _, spread, _, _ = outcomes(demo)
    assert plain.epoch_seconds == 4.25
    assert spread.epoch_seconds == (2.25 + 2.5) / 2
    assert plain.examples_per_second == 8000 / 4.25


def test_the_table_compares_with_the_first_row(demo: ModuleType) -> None:
    seen = outcomes(demo)
    assert demo.largest_difference(seen[0], seen[2]) == 0.0625
    console = Console(width=80, file=io.StringIO())
    console.print(demo.table_of(seen))
    text = console.file.getvalue()
    row = next(line for line in text.splitlines() if "Paceline, 2 workers of 1 core" in line)
    assert row.split()[-6:] == ["2.38", "3,368", "1.79", "×", "95.00%", "6e-02"]


def test_workers_that_disagree_are_told_of(demo: ModuleType) -> None:
    assert outcomes(demo)[2].processes_agree
    assert "bit for bit" in demo.caption_of(outcomes(demo))
    apart = outcomes(demo, second_weight=0.75)
    assert not apart[2].processes_agree
    assert "WRONG" in demo.caption_of(apart)


def test_a_kill_changes_no_bit_or_is_told_of(demo: ModuleType) -> None:
    seen = outcomes(demo)
    assert demo.is_equal_after_kill(seen[2], seen[3])
    text = " ".join(demo.caption_of(seen).split())
    assert "took 8 s longer, and ended with the weights of the run without a kill, bit for bit" in text
    other = outcomes(demo, weight_after_kill=0.75)
    assert not demo.is_equal_after_kill(other[2], other[3])
    assert "WRONG: after a kill" in demo.caption_of(other)
