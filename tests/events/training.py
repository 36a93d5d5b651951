"""A script that trains, with the sink of docs/events.md: ``python training.py [SNAPSHOTS]``."""

import contextlib
import sys
from pathlib import Path

import keras
import metrics_csv
import numpy as np

import paceline
from paceline.events import EpochEnded, Event, FitBegan, FitEnded, SnapshotTaken, StepDone

keras.utils.set_random_seed(1)
metrics_csv.write_metrics("metrics")
seen: list[Event] = []
paceline.events.subscribe(seen.append)


def fail(event: Event) -> None:
    raise ValueError("a sink that fails")


paceline.events.subscribe(fail)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
features = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")


class Evaluates(keras.callbacks.Callback):
    """Evaluates the same model within the fit, which is no step and no validation."""

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self.model.evaluate(features, features[:, 0], verbose=0, batch_size=8)


def fit(*callbacks: keras.callbacks.Callback) -> None:
    model.fit(
        features,
        features[:, 0],
        epochs=2,
        batch_size=8,
        verbose=0,
        validation_data=(features[:8], features[:8, 0]),
        callbacks=[Evaluates(), *callbacks],
    )


snapshots = [paceline.callbacks.Snapshot(sys.argv[1], every_steps=2)] if len(sys.argv) > 1 else []
fit(*snapshots)
rank = paceline.rank()
assert {event.rank for event in seen} == {rank}
steps = [event for event in seen if isinstance(event, StepDone)]
assert [(step.step, step.epoch, step.num_steps) for step in steps] == [(n + 1, n // 3, 1) for n in range(6)], steps
assert all(step.seconds > 0 for step in steps)
kinds = [type(event).__name__ for event in seen if not isinstance(event, SnapshotTaken)]
epoch = ["EpochBegan", *["StepDone"] * 3, *["BatchDone"] * 4, "EpochEnded"]
assert [kind for kind in kinds if kind not in ("TraceBegan", "StepsTimed", "TimeSpent")] == [
    "FitBegan",
    *epoch,
    *epoch,
    "FitEnded",
], kinds
validations = [event.is_validation for event in seen if type(event).__name__ == "BatchDone"]
assert validations == [True, False, False, False] * 2, validations
for ended in (event for event in seen if isinstance(event, EpochEnded)):
    assert set(ended.logs) == {"loss", "mae", "val_loss", "val_mae"}
    assert ended.step == 3 * (ended.epoch + 1)
taken = [event for event in seen if isinstance(event, SnapshotTaken)]
assert bool(taken) == (bool(snapshots) and rank == 0)
if taken:
    assert (taken[-1].step, taken[-1].bytes > 0) == (6, True)
    assert taken[-1].name in [path.name for path in Path(sys.argv[1]).iterdir()]

seen.clear()


class Raises(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if batch == 1:
            raise KeyError("a callback")


with contextlib.suppress(KeyError):
    fit(Raises(), *snapshots)
assert isinstance(seen[0], FitBegan)
assert (seen[0].call, seen[0].step, seen[0].is_repeated) == (1, 6, False)
[end] = [event for event in seen if isinstance(event, FitEnded)]
assert end == FitEnded(rank, 7, True), end
print(f"SEEN {rank}", flush=True)
