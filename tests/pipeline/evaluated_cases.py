"""What a process has of a job in stages that it only evaluates: cases for a process that nobody launches."""

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np

import paceline
from paceline.evaluation.snapshot_source import SnapshotSource

ROWS = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")


def _build() -> Any:
    return keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(3, "tanh") for _ in range(4))])


def snapshots_of_stages(folder: str) -> None:
    """A whole model gets the weights of all chunks."""
    keras.utils.set_random_seed(2)
    with paceline.PipelineStrategy(1, micro_batches=2, schedule="interleaved").scope():
        model = _build()
        model.compile("adam", "mse")
    taken = paceline.callbacks.Snapshot(folder, every_steps=100)  # of the first step, and of the end
    model.fit(ROWS, ROWS[:, :3], batch_size=4, epochs=1, verbose=0, callbacks=[taken])
    source, whole = SnapshotSource(folder), _build()
    at_end, at_first_step = source.found()
    first, moment = source.load(at_first_step, whole), source.load(at_end, whole)
    assert moment.step == first.step + 2  # steps are counted over all fits of a process
    np.testing.assert_array_equal(whole.predict(ROWS, verbose=0), model.predict(ROWS, verbose=0))


def whole_model(folder: str) -> None:
    """In an evaluator, the script's strategy has one process, which has all weights."""
    cluster = '"cluster": {"worker": ["a:1", "b:1"]}'
    os.environ["TF_CONFIG"] = f'{{{cluster}, "task": {{"type": "evaluator", "index": 0}}}}'
    with paceline.PipelineStrategy(stages=2, micro_batches=8).scope():
        model = _build()
        model.compile("adam", "mse")
    assert np.isfinite(model.evaluate(ROWS, ROWS[:, :3], verbose=0))
    assert all(np.isfinite(value).all() for value in model.get_weights())


def run_case(name: str, folder: str) -> None:
    """Runs one of them."""
    {"snapshots_of_stages": snapshots_of_stages, "whole_model": whole_model}[name](str(Path(folder)))
