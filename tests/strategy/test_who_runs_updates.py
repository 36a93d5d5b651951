"""Whether updates run as loops, and what is said where they do not."""

import logging

import pytest
import tensorflow as tf

from paceline.strategy import fused_updates


def test_without_llvmlite_a_line_says_what_is_missed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="paceline")
    monkeypatch.setattr(fused_updates, "is_available", lambda: False)
    fused_updates._tell_what_is_missed.cache_clear()
    assert fused_updates.fused_updates(tells=False) is None
    assert not caplog.messages
    for _ in range(2):
        assert fused_updates.fused_updates(tells=True) is None
    [line] = caplog.messages
    assert "pip install llvmlite" in line


def test_variables_on_a_gpu_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
    assert fused_updates.fused_updates(tells=True) is None


def test_otherwise_they_do() -> None:
    pytest.importorskip("llvmlite", reason="paceline[cpu] brings llvmlite, which compiles the loops")
    assert fused_updates.fused_updates(tells=True) is not None
