"""Every part of `fit` and of `TrainingState` keeps one contract, whatever it holds.

Capturing changes nothing, and gives what a snapshot can store. Arrays are called after their part. What was settled
stays as it was. A part that is restored, in a process that stands elsewhere, captures the same again.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from paceline.fit.snapshots.callback_files import csv_part
from paceline.fit.snapshots.fit_parts import result_parts
from paceline.fit.snapshots.model_state import look_again
from paceline.fit.snapshots.skipped_fits import FinishedFits
from paceline.fit.snapshots.source_state import SourceState
from paceline.fit.snapshots.training_state import parts_of
from paceline.fit.snapshots.validation import Validation
from paceline.resilience.copy_buffers import CopyBuffers
from paceline.resilience.parts import Captured, Part, Scope, capture
from programs import run_python
from saved_parts import ALONE, layouts_of, restore, snapshot_of

Case = tuple[list[Part], Callable[[], None]]
"""Parts, and what changes all that they hold."""

ROWS = np.arange(24, dtype="float32").reshape(8, 3) / 24


class Rows(keras.utils.PyDataset):
    """Shuffles its rows between epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.order = np.arange(8)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        rows = self.order[index * 4 : index * 4 + 4]
        return ROWS[rows], ROWS[rows].sum(axis=1)


class Remembers(keras.callbacks.Callback):
    """Has a bit of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.best = float("inf")
        self.generator = np.random.default_rng(2)
        self.table = {"b": (1, np.zeros(2)), "a": {3}}

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(float(logs["loss"]))
        self.best = min(self.best, self.generator.random())
        self.table["b"][1][0] += 1


def trained_model() -> Any:
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(0.1, gradient_accumulation_steps=3), "mse", metrics=["mae"])
    model.counts = tf.Variable(2.0)
    return model


def of_fit(folder: Path) -> Case:
    model, remembers = trained_model(), Remembers()
    early, logger = keras.callbacks.EarlyStopping("loss", patience=9), keras.callbacks.CSVLogger(folder / "rows.csv")
    callbacks = [remembers, early]
    past, source = FinishedFits(), Rows()
    validation = Validation(Rows(), is_chief=True)
    of_source = SourceState(source, is_chief=True)

    def train() -> None:
        model.fit(ROWS, ROWS.sum(axis=1), batch_size=4, epochs=1, verbose=0, callbacks=callbacks)
        look_again(model)
        model.counts.assign_add(1.0)
        model.stop_training = not model.stop_training
        random.random()
        keras.random.normal((1,))
        past.batches[len(past.batches)] = (2, 0)
        past.raised.add(7)
        np.random.default_rng(len(past.batches)).shuffle(source.order)

    train()
    parts = [
        *result_parts(model, lambda: callbacks, is_chief=True, speaks=True),
        validation.part(),
        past.part(),
        of_source.part(),
        csv_part([logger], leads=True),
    ]
    return parts, train


def of_training_state(folder: Path) -> Case:
    model, mean, accuracy = trained_model(), keras.metrics.Mean(), keras.metrics.Accuracy()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    optimizer.build(model.trainable_variables)
    offset, remembers = tf.Variable([1.0, 2.0]), Remembers()
    data = iter(tf.data.Dataset.range(40).shuffle(20, seed=1).batch(2))
    things = {
        "model": model,
        "optimizer": optimizer,
        "mean": mean,
        "accuracy": accuracy,
        "offset": offset,
        "seeds": keras.Variable(3.0),
        "data": data,
        "remembers": remembers,
    }

    def train() -> None:
        for variable in (*model.variables, *optimizer.variables, offset, things["seeds"]):
            if variable.dtype == "float32":
                variable.assign(variable + 1.0)
        model.counts.assign_add(1.0)
        mean.update_state(next(data))
        accuracy.update_state([1, 2], [1, 1])
        remembers.on_train_batch_end(0, {"loss": 0.5})

    train()
    return [part for name, thing in things.items() for part in parts_of(name, thing, is_chief=True)], train


CASES = {"fit": of_fit, "TrainingState": of_training_state}


def written(captured: Captured) -> tuple[Any, dict[str, Any]]:
    buffers = CopyBuffers()
    buffers.begin()
    shard = captured.copied(buffers)
    buffers.end()
    return shard.state, {name: np.array(array) for name, array in shard.tensors.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_all_parts(case: Callable[[Path], Case], tmp_path: Path) -> None:
    parts, train = case(tmp_path)
    assert len({part.name for part in parts}) == len(parts)
    state, arrays = written(capture(parts, ALONE))
    again, arrays_again = written(capture(parts, ALONE))
    np.testing.assert_equal((again, arrays_again), (state, arrays), "capturing changed something")
    for part in parts:
        alone = capture([part], ALONE)
        names = {*alone.live, *alone.held, *alone.fixed}
        assert all(name == part.name or name.startswith(f"{part.name}/") for name in names), part.name
    snapshot, settled = snapshot_of([parts]), capture(parts, ALONE)
    settled.settle()
    train()
    changed = [part.name for part in parts if written(capture([part], ALONE))[0] != {part.name: state[part.name]}]
    changed += [name for name, array in written(capture(parts, ALONE))[1].items() if not same(arrays.get(name), array)]
    assert changed, "the test changes nothing"
    np.testing.assert_equal(written(settled), (state, arrays), "what was settled has changed")
    restore(snapshot, parts)
    np.testing.assert_equal(written(capture(parts, ALONE)), (state, arrays))


def same(first: Any, second: Any) -> bool:
    return first is not None and first.shape == second.shape and bool((first == second).all())


def test_sums_have_the_same_total_on_other_ranks(tmp_path: Path) -> None:
    """Those of a loop with `strategy.run`: steps of `fit` have the sums of all on each rank."""
    parts, _ = of_training_state(tmp_path)
    sums = [part for part in parts if part.scope is Scope.SUM]
    _, arrays = written(capture(sums, ALONE))
    assert any(array.any() for array in arrays.values())
    of_two = snapshot_of([sums] * 2)
    total: dict[str, Any] = {name: np.zeros_like(array) for name, array in arrays.items()}
    for layout in layouts_of([range(3)]):
        restore(of_two, sums, layout)
        for name, array in written(capture(sums, ALONE))[1].items():
            total[name] = total[name] + array
    for name, array in arrays.items():
        np.testing.assert_allclose(total[name], 2 * array, err_msg=name)


NAMES = """
import sys, json
import keras, numpy as np
from paceline.callbacks import Snapshot
from paceline.store.snapshots import SnapshotStore
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 3)), np.ones(8), verbose=0, callbacks=[Snapshot(sys.argv[1])])
store = SnapshotStore(sys.argv[1])
print("NAMES", json.dumps(sorted(store.open(store.newest_intact().found).state(0))))
"""


@pytest.mark.processes
def test_no_part_of_a_fit_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NAMES)
    [line] = run_python(tmp_path / "train.py", tmp_path / "run", folder=tmp_path).lines("NAMES")
    parts, _ = of_fit(tmp_path)
    elsewhere = {"data", "logs"}  # `test_data_position.py`; the last step's logs, in every job of `test_resume.py`
    assert {*json.loads(line.removeprefix("NAMES "))} == {part.name for part in parts} | elsewhere
