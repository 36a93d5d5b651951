"""A `fit` that ended too many calls ago is passed over all the same: to refuse it would end every rerun there."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.comm.solo import SoloGroup
from paceline.fit.snapshots import skipped_fits
from paceline.fit.snapshots.model_state import model_parts
from paceline.fit.snapshots.skipped_fits import FinishedFits, SkippedFit
from paceline.resilience.parts import Part, Scope
from paceline.resilience.restored_parts import SavedParts
from saved_parts import ALONE, restore, snapshot_of

COUNTS = st.integers(0, 1 << 40)
CALLS = st.integers(0, 10_000)


@given(st.dictionaries(CALLS, st.lists(COUNTS, max_size=9).map(tuple), max_size=80), st.sets(CALLS, max_size=80))
def test_what_is_known_of_finished_fits_comes_back(batches: dict[int, tuple[int, ...]], raised: set[int]) -> None:
    again = FinishedFits()
    restore(snapshot_of([[FinishedFits(7, batches, raised).part()]]), [again.part()])
    assert again == FinishedFits(0, batches, raised)


def skipped(fit_call: int, past: FinishedFits, *parts: Part, end: bool = False) -> SkippedFit:
    """In a run whose newest snapshot has these parts, and is, or is not, that of the end of this call."""
    reader = snapshot_of([parts])
    info = reader.info if end else None
    manager: Any = SimpleNamespace(
        newest_of_fit=lambda call, *, ends_fit: info if ends_fit else None,
        found=reader.info,
        saved=lambda _: SavedParts(reader, ALONE),
        leads=True,
        group=SoloGroup(),
    )
    world: Any = SimpleNamespace(rank=0, is_chief=True, size=1)
    return SkippedFit(manager, world, fit_call, past)


def constant(name: str, value: Any) -> Part:
    return Part(name, Scope.RANK, lambda arrays: arrays.value(value), lambda _: None)


def model_of(width: int) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(width)])
    model.compile("sgd", "mse")
    return model


def test_the_newest_snapshot_may_be_that_of_another_model(caplog: pytest.LogCaptureFixture) -> None:
    model, later = model_of(2), model_of(8)
    before = model.get_weights()
    over = skipped(4, FinishedFits(), *model_parts(later, is_chief=True))
    over._restore_what_fits(model_parts(model, is_chief=True))
    for weight, was in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, was)
    [record] = caplog.records
    assert "call 5 of fit had finished" in record.getMessage()
    assert "stays UNTRAINED" in record.getMessage()
    assert "has the shape (3, 8) in the snapshot, but (3, 2) in the script" in record.getMessage()


def passing_over(fit_call: int, past: FinishedFits, own: FinishedFits) -> SkippedFit:
    """In a run whose newest snapshot is one of fit 29, in its first epoch, and has `own` of the fits before it."""
    return skipped(fit_call, past, constant("data", {"cursor": {"batches": [40]}}), own.part())


def test_the_data_stand_behind_a_fit_without_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last ends of fits stay; the newest snapshot is of another fit, but knows how far each had read."""
    past = FinishedFits(steps=1200, batches={11: (100, 0)})
    told = FinishedFits(batches=dict.fromkeys(range(29), (100, 0)))
    over = passing_over(12, past, told)
    assert not over.had_raised()
    monkeypatch.setattr(skipped_fits, "build_from", lambda *_: None)
    monkeypatch.setattr(SkippedFit, "_restore_what_fits", lambda *_: None)
    advanced: list[Any] = []
    over._data = SimpleNamespace(advance=advanced.append, element_spec=None)  # type: ignore[assignment]
    history = keras.callbacks.History()
    assert over.over(model_of(1), lambda **_: history, {}) is history
    assert advanced == [(100, 0)]
    told = FinishedFits(steps=7, batches={11: (100, 0), 12: (100, 0)}, are_exact=False)
    assert past == told, "what is passed over is written on"


def test_a_fit_that_had_raised_is_known() -> None:
    told = FinishedFits(batches={0: (5,)}, raised={1})
    assert [passing_over(call, FinishedFits(), told).had_raised() for call in (0, 1, 2)] == [False, True, False]


@pytest.mark.parametrize(
    ("wanted", "has_stopped", "is_told"), [(3, False, False), (5, False, True), (5, True, False), (1, False, False)]
)
def test_more_epochs_than_a_fit_had_been_given_are_told_of(
    wanted: int, has_stopped: bool, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "paceline")
    over = skipped(0, FinishedFits(), constant("stopped", has_stopped))
    over._say_where_it_comes_from([0, 1, 2], {"epochs": wanted})
    assert ["epochs=5, but call 1 of fit finished with epochs=3" in one for one in caplog.messages] == [True] * is_told
