"""Whether updates run as loops, and what is said where they do not."""

import logging
import sys
import types
from collections.abc import Iterator

import pytest
import tensorflow as tf

from paceline.strategy import fused_updates, loop_compiler


@pytest.fixture
def new_process() -> Iterator[None]:
    """Nothing has been asked or compiled yet, and nothing of what is answered is remembered."""

    def forget() -> None:
        for function in (loop_compiler.why_not, loop_compiler.runner, fused_updates._tell_what_is_missed):
            function.cache_clear()

    forget()
    yield
    forget()


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(None, "ModuleNotFoundError", id="missing"),
        pytest.param(types.ModuleType("llvmlite.binding"), "has no attribute", id="another version"),
    ],
)
@pytest.mark.usefixtures("new_process")
def test_without_an_llvmlite_that_works_a_line_says_what_is_missed(
    found: types.ModuleType | None, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="paceline")
    monkeypatch.setitem(sys.modules, "llvmlite", types.ModuleType("llvmlite") if found else None)
    monkeypatch.setitem(sys.modules, "llvmlite.binding", found)
    assert fused_updates.fused_updates(tells=False) is None
    assert not caplog.messages
    for _ in range(2):
        assert fused_updates.fused_updates(tells=True) is None
    [line] = caplog.messages
    assert reason in line
    assert "pip install --upgrade llvmlite" in line


def test_variables_on_a_gpu_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
    assert fused_updates.fused_updates(tells=True) is None


def test_otherwise_they_do() -> None:
    pytest.importorskip("llvmlite", reason="paceline[cpu] brings llvmlite, which compiles the loops")
    assert fused_updates.fused_updates(tells=True) is not None
