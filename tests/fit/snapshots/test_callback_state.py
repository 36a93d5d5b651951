"""Callbacks get what training has changed of them, and keep what the script has set."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline
from paceline.fit.snapshots.callback_state import callbacks_begin, callbacks_part
from paceline.resilience.parts import Captured, capture
from saved_parts import ALONE, MemoryReader, restore


class Watcher(keras.callbacks.Callback):
    """Does what callbacks do with what they hold."""

    def __init__(self, losses: list[float], path: str = "first", patience: int = 5) -> None:
        super().__init__()
        self.path, self.patience, self.losses = path, patience, losses
        self.wait, self.is_swapped, self.best = 4, False, None
        self.random = np.random.default_rng(1)
        self.rate = 0.1
        self.file: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.wait, self.best, self.made, self.file = 0, float("inf"), {}, open

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.is_swapped = not self.is_swapped
        self.losses.append(1.0)

    def train(self) -> None:
        self.on_epoch_begin(1)  # the second one: swapped twice
        self.wait, self.rate = 4, 0.05
        self.made["a"] = self.random.random()


def captured(callbacks: list[Any], *, is_chief: bool = True) -> Captured:
    return capture([callbacks_part(lambda: callbacks, is_chief=is_chief)], ALONE)


def put_back(found: Captured, callbacks: list[Any], *, is_chief: bool = True) -> None:
    restore(MemoryReader([found]), [callbacks_part(lambda: callbacks, is_chief=is_chief)])


def begun(callback: Watcher, *, goes_on: bool) -> Watcher:
    callbacks_begin([callback], holds_values=goes_on)
    callback.on_train_begin()
    callback.on_epoch_begin(1 if goes_on else 0)
    return callback


def test_a_callback_gets_what_training_has_changed_and_keeps_what_the_script_has_set() -> None:
    """Whatever its hooks, which run once more in a rerun, have made of either."""
    first = begun(Watcher([]), goes_on=False)
    first.train()
    found = captured([first])
    [[_, state]] = found.state["callbacks"]
    assert state["held"]["state"].keys() == {"losses", "best", "made", "random", "rate"}
    assert state["held"]["unchanged"] == ["is_swapped", "path", "patience", "wait"]
    losses: list[float] = []
    rerun = begun(Watcher(losses, path="second", patience=9), goes_on=True)
    assert (rerun.wait, rerun.is_swapped) == (0, True)
    put_back(found, [rerun])
    assert (rerun.path, rerun.patience) == ("second", 9)
    assert (rerun.wait, rerun.is_swapped, rerun.best, rerun.rate) == (4, False, float("inf"), 0.05)
    assert rerun.losses is losses == first.losses
    assert rerun.made == first.made
    assert rerun.random.random() == first.random.random()
    assert rerun.file is open
    [[_, again]] = captured([rerun]).state["callbacks"]
    assert again["held"]["state"].keys() >= state["held"]["state"].keys(), "what a snapshot knows to change stays in"


def test_callbacks_of_keras_have_their_settings_from_the_script() -> None:
    """Their state is what it was, as `on_train_begin` of either run leaves it or training has made it."""

    def made(folder: str, patience: int) -> list[Any]:
        return [
            keras.callbacks.EarlyStopping("loss", patience=patience, min_delta=0.01),
            keras.callbacks.ReduceLROnPlateau("loss", patience=patience),
            keras.callbacks.ModelCheckpoint(f"{folder}/a.keras", monitor="loss", save_freq=9),
            keras.callbacks.TensorBoard(folder),
        ]

    first = made("/tmp/run1", 5)
    callbacks_begin(first, holds_values=False)
    first[0].best, first[0].wait, first[0].min_delta = 0.5, 2, -0.01
    first[1].best, first[2].best, first[2]._batches_seen_since_last_saving = 0.5, 0.5, 3
    found = captured(first)
    stopping, plateau, checkpoint, board = rerun = made("/tmp/run2", 8)
    callbacks_begin(rerun, holds_values=True)
    put_back(found, rerun)
    assert (stopping.patience, stopping.best, stopping.wait, stopping.min_delta) == (8, 0.5, 2, -0.01)
    assert (plateau.patience, plateau.best) == (8, 0.5)
    assert checkpoint.filepath == "/tmp/run2/a.keras"
    assert (checkpoint.best, checkpoint._batches_seen_since_last_saving) == (0.5, 3)
    assert board.log_dir == "/tmp/run2"


@pytest.mark.parametrize("is_restored", [True, False], ids=["restored", "left"])
def test_a_variable_of_the_model_stays_as_the_snapshot_has_made_it(is_restored: bool) -> None:
    """A callback that holds one, which nothing changes in this `fit`, had put the weights of before back over it."""
    weight = tf.Variable(5.0)
    first = Watcher([])
    first.file = weight
    callbacks_begin([first], holds_values=False)
    found = captured([first])
    [[_, state]] = found.state["callbacks"]
    if not is_restored:  # as older versions have written it
        del state["held"]["state"]["file"]
        state["held"]["unchanged"].append("file")
    rerun = Watcher([])
    rerun.file = tf.Variable(0.0)
    callbacks_begin([rerun], holds_values=True)
    rerun.file.assign(5.0)  # the snapshot's
    put_back(found, [rerun])
    assert rerun.file.numpy() == 5


@paceline.chief_only
class Plot(keras.callbacks.Callback):
    """On other ranks than the chief Keras is not told of it."""

    drawn = 0


@pytest.mark.parametrize("is_passed_over", [True, False])
@pytest.mark.parametrize(("is_chief", "of_chief"), [(True, True), (False, True), (False, False)])
def test_each_rank_matches_what_it_has(
    is_chief: bool, of_chief: bool, is_passed_over: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A new rank reads the chief's states, and a `fit` that is passed over is given all that the script has."""
    stopping = keras.callbacks.EarlyStopping("loss")
    first = [Plot(), stopping] if of_chief else [stopping]
    callbacks_begin(first, holds_values=False)
    stopping.wait = 2
    vars(first[0])["drawn"] = 7
    found = captured(first)
    plot, rerun = Plot(), keras.callbacks.EarlyStopping("loss")
    ours = [plot, rerun] if is_chief or is_passed_over else [rerun]
    callbacks_begin(ours, holds_values=True)
    put_back(found, ours, is_chief=is_chief)
    assert rerun.wait == 2
    assert plot.drawn == (7 if is_chief else 0)
    assert not caplog.records
