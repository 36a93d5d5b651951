"""What a `fit` under no strategy of Paceline's is told, in a world of several."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.fit import training_apart

CHIEF: Any = SimpleNamespace(rank=0, is_chief=True, size=3, solo_training_allowed=False)


class CentralStorageStrategy:
    pass


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    strategies: list[str] = []
    monkeypatch.setattr(training_apart, "named_strategies", strategies)
    monkeypatch.setattr(training_apart, "current_world", lambda: CHIEF)
    return strategies


def test_a_script_without_a_strategy_is_told_of_the_option(named: list[str]) -> None:
    assert not named
    with pytest.raises(RuntimeError, match=r"this script names no strategy, and --no-drop-in .* its 3 workers"):
        training_apart.refuse_training_apart(None)


def test_a_model_under_a_strategy_that_is_not_replaced_is_told_which(named: list[str]) -> None:
    assert not named
    with pytest.raises(RuntimeError, match="built under CentralStorageStrategy, which Paceline does not") as raised:
        training_apart.refuse_training_apart(CentralStorageStrategy())
    assert "--no-drop-in" not in str(raised.value)


@pytest.mark.parametrize(
    ("other", "told"),
    [(None, "outside strategy.scope()"), (CentralStorageStrategy(), "under CentralStorageStrategy, which")],
)
def test_beside_a_strategy_of_its_own_a_script_is_warned_by_the_chief(
    named: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, other: Any, told: str
) -> None:
    named.append("MirroredStrategy")
    monkeypatch.setattr(logging.getLogger("paceline"), "propagate", True)
    training_apart.refuse_training_apart(other)
    follower = SimpleNamespace(rank=1, is_chief=False, size=3, solo_training_allowed=False)
    monkeypatch.setattr(training_apart, "current_world", lambda: follower)
    training_apart.refuse_training_apart(other)
    [record] = caplog.records
    assert told in record.getMessage()
