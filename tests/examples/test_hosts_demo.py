"""The figures and the verdict of `make hosts-demo`, from made-up results; tests/hosts runs what it shows."""

import importlib
import io
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rich.console import Console

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("hosts_demo")


def outcome(demo: ModuleType, num_processes: int = 2, weight: float = 0.5, agree: bool = True):
    return demo.Outcome("way", 2.0 / num_processes, (np.array([weight, -1.0]),), num_processes, agree)


def test_the_table_says_how_fast_and_how_equal(demo: ModuleType) -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(demo.table_of(outcome(demo, 1), outcome(demo, weight=0.5 + 1e-12)))
    last = console.file.getvalue().strip().splitlines()[-1].split()  # type: ignore[attr-defined]
    assert last == ["way", "2", f"{demo.NUM_TRAIN:,}", "2.00", "×", "1e-12"]


def test_only_equal_weights_are_right(demo: ModuleType) -> None:
    alone = outcome(demo, 1)
    assert demo.is_right(alone, outcome(demo))
    assert not demo.is_right(alone, outcome(demo, weight=0.5001))
    assert not demo.is_right(alone, outcome(demo, agree=False))
    assert not demo.is_right(alone, outcome(demo, 1))
