"""A `fit` that comes back with an exception: the watcher hears of it, and a rerun trains it once more."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.fit.run import observer
from paceline.fit.snapshots import resumable_fit


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Any:
    process = resumable_fit._Process()
    process.past.steps = 20
    monkeypatch.setattr(resumable_fit, "_process", process)
    return process


def fit_of(end: BaseException | None) -> Callable[..., Any]:
    def fit(**_: Any) -> str:
        progress: Any = observer()
        progress.step_done(2)
        if end is not None:
            raise end
        return "history"

    return fit


def test_a_fit_that_had_raised_is_trained_again(
    process: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To pass over it would give the script a `History` where it had caught an exception."""
    left: list[str] = []
    monkeypatch.setattr(resumable_fit, "preemption_of", lambda _: SimpleNamespace(leave_fit=lambda: left.append("fit")))
    world: Any = SimpleNamespace(rank=0, is_chief=True)
    with caplog.at_level(logging.INFO), pytest.raises(ValueError, match="pruned"):
        resumable_fit._fit_again(fit_of(ValueError("pruned")), None, 3, world)
    assert left == ["fit"]
    assert (process.past.raised, process.past.steps) == ({3}, 23)
    [record] = caplog.records
    assert "call 4 of fit raised an exception" in record.getMessage()
    caplog.clear()
    assert resumable_fit._fit_again(fit_of(None), None, 3, world) == "history"
    [record] = caplog.records
    assert "but not this time" in record.getMessage()
