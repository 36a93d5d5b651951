"""Cases: `tf.saved_model.save`, and exports of models with variables that only all ranks together can read."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from files.ingredients import RANK, ROWS, case, fit, shared_model, trained


class _Counting(keras.layers.Layer):
    """Counts the rows it has seen, of all ranks, and adds their number when it serves."""

    def build(self, shape: Any) -> None:
        del shape
        self.seen = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def call(self, rows: Any, training: bool = False) -> Any:
        if training:
            self.seen.assign_add(tf.cast(tf.shape(rows)[0], tf.float32))
            return rows
        return rows + self.seen


def _counting_model() -> keras.Model:
    with shared_model().distribute_strategy.scope():
        model = keras.Sequential([keras.Input((4,)), _Counting(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    fit(model)
    return model


def _seen_below(directory: Path) -> float:
    """The number of rows in a SavedModel, whatever it calls the variable: the only scalar that is no optimizer's."""
    reader = tf.train.load_checkpoint(str(directory / "variables" / "variables"))
    shapes = reader.get_variable_to_shape_map()
    [seen] = [name for name, shape in shapes.items() if shape == [] and not name.startswith(("optimizer", "_CHECK"))]
    return float(reader.get_tensor(seen))


@case
def a_model_with_a_sum_over_ranks_is_exported_by_all_together(directory: Path) -> Any:
    model = _counting_model()
    model.export(str(directory / "exported"), verbose=False)
    model.export(str(directory / "exported"), verbose=False)  # in the place of the first
    tf.saved_model.save(model, str(directory / "saved"))
    model.save(directory / "model.keras")
    loaded = tf.saved_model.load(str(directory / "exported"))
    served = loaded.serve(ROWS)
    return {
        "is_served": bool(np.allclose(served, model(ROWS))),
        "seen": [_seen_below(directory / name) for name in ("exported", "saved")],
        "is_kept": (directory / "model.keras").is_file(),
        "left": sorted(path.name for path in directory.iterdir()),
    }


@case
def a_saved_model_is_written_by_one_rank(directory: Path) -> Any:
    model = trained()
    module = tf.Module()
    module.kernel = tf.Variable(tf.ones([2]))
    saved = []
    for number in range(3):
        module.kernel.assign([1.0, number])
        tf.saved_model.save(module, str(directory / f"module{number}"))
        saved.append(tf.saved_model.load(str(directory / f"module{number}")).kernel.numpy().tolist())
    tf.saved_model.save(model, str(directory / "model"))
    loaded = tf.saved_model.load(str(directory / "model"))
    [served] = loaded.signatures["serving_default"](tf.constant(ROWS)).values()
    if RANK == 0:
        tf.saved_model.save(module, str(directory / "chiefs"))
    tf.saved_model.save(module, str(directory / f"own{RANK}"))
    return {
        "saved": saved,
        "is_served": bool(np.allclose(served, model(ROWS))),
        "own": (directory / f"own{RANK}" / "saved_model.pb").is_file(),
    }
