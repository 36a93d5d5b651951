"""Cases: `tf.train.Checkpoint` and `tf.train.CheckpointManager`."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from files.ingredients import RANK, case, files_below, fit, flat, shared_model, trained


@case
def a_checkpoint_manager_on_every_rank(directory: Path) -> Any:
    model = shared_model()
    checkpoint = tf.train.Checkpoint(model=model, epoch=tf.Variable(0))
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=2)
    books = []
    for _ in range(4):
        fit(model)
        checkpoint.epoch.assign_add(1)
        books.append([Path(manager.save()).name, *(Path(path).name for path in manager.checkpoints)])
    saved = flat(model)
    fit(model)
    again = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=2)
    checkpoint.restore(again.latest_checkpoint).assert_existing_objects_matched()
    return {
        "books": books,
        "files": files_below(directory),
        "is_restored": np.array_equal(flat(model), saved) and int(checkpoint.epoch) == 4,
        "kept": [Path(path).name for path in again.checkpoints],
    }


@case
def checkpoints_without_a_manager(directory: Path) -> Any:
    model = trained()
    checkpoint = tf.train.Checkpoint(model=model)
    paths = [checkpoint.save(directory / "saved") for _ in range(2)]
    paths.append(checkpoint.write(str(directory / "written")))
    saved = flat(model)
    fit(model)
    checkpoint.read(paths[-1]).assert_existing_objects_matched()
    return {
        "paths": [Path(path).name for path in paths],
        "latest": Path(tf.train.latest_checkpoint(directory)).name,
        "is_restored": np.array_equal(flat(model), saved),
        "files": files_below(directory),
    }


@case
def the_chief_alone_keeps_checkpoints(directory: Path) -> Any:
    model = trained()
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), directory, max_to_keep=1)
    for _ in range(3):
        fit(model)
        if RANK == 0:
            manager.save()
    fit(model)
    return files_below(directory)


@case
def each_rank_keeps_its_own_as_the_tutorial_does(directory: Path) -> Any:
    model = trained()
    own = directory if RANK == 0 else directory / f"workertemp_{RANK}"
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), own, max_to_keep=1)
    path = manager.save()
    found = Path(f"{path}.index").is_file()
    if RANK > 0:
        tf.io.gfile.rmtree(str(own))
    fit(model)
    return found, files_below(directory)


@case
def a_sum_over_ranks_is_saved_by_all_together(directory: Path) -> Any:
    strategy = shared_model().distribute_strategy
    with strategy.scope():
        total = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    strategy.run(lambda: total.assign(2.0))
    checkpoint = tf.train.Checkpoint(total=total)
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
    paths = [Path(manager.save()).name for _ in range(2)]
    reader = tf.train.load_checkpoint(manager.latest_checkpoint)
    strategy.run(lambda: total.assign(0.0))
    strategy.reduce("SUM", 0.0, axis=None)  # all have renamed their files
    return {
        "paths": paths,
        "total": float(reader.get_tensor("total/.ATTRIBUTES/VARIABLE_VALUE")),
        "files": files_below(directory),
    }
