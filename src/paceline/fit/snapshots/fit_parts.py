"""What a `fit` leaves behind, as parts of a snapshot; and the notes of a snapshot."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paceline.cluster import environment
from paceline.comm.world import World
from paceline.errors import ConfigurationError
from paceline.fit import compat
from paceline.fit.engine import engine_of
from paceline.fit.snapshots.callback_state import callbacks_part
from paceline.fit.snapshots.data_position import Cursor
from paceline.fit.snapshots.fit_progress import numbers_of, plain
from paceline.resilience.manager import SnapshotManager
from paceline.resilience.object_state import decode
from paceline.resilience.parts import Part, Saved, Scope
from paceline.resilience.random_generators import capture_generators, restore_generators, was_seeded_otherwise
from paceline.resilience.restored_parts import SavedParts
from paceline.resilience.usable_snapshots import ENDS_FIT
from paceline.store.manifest import SnapshotInfo, SnapshotMeta
from paceline.store.retention import METRICS, METRICS_EPOCH

_LOGGER = logging.getLogger("paceline")

TAKEN_AT = "taken_at_seconds"
"""In the notes: when the state was copied, since 1970; it is written while training goes on."""
RANDOM = ".random"
"""No keyword of `TrainingState` can be called so."""
MODEL = "model"
"""In the notes, where a job trains several models: the index of this one, from 0, and how many there are."""
STOPPED = "stopped"


def result_parts(model: Any, callbacks: Callable[[], Sequence[Any]], *, is_chief: bool, speaks: bool) -> list[Part]:
    """What a `fit` leaves behind in its model, callbacks and process.

    Args:
        model: What it trains.
        callbacks: Gives its callbacks.
        is_chief: Whether this rank is the job's chief.
        speaks: Whether it says what all ranks that train the model see.
    """
    return [
        *engine_of(model).parts(model, speaks=speaks),
        callbacks_part(callbacks, is_chief=is_chief),
        random_part(),
        Part(STOPPED, Scope.RANK, lambda _: bool(model.stop_training), lambda saved: _stop(model, saved)),
        Part(
            "history",
            Scope.GROUP,
            lambda arrays: [list(model.history.epoch), arrays.value(plain(model.history.history))],
            lambda saved: _restore_history(model.history, saved),
        ),
    ]


def random_part() -> Part:
    """The random generators of this process, Keras's own included."""
    return Part(
        RANDOM,
        Scope.RANK,
        lambda arrays: arrays.value({"keras": _keras_seed(), "process": capture_generators()}),
        lambda saved: _restore_random(**saved.value),
    )


def warn_of_another_seed(snapshot: SavedParts) -> None:
    """Before it is restored: says that shuffles without a seed are not those of the snapshot, where that is so."""
    if was_seeded_otherwise(snapshot.of(RANDOM).value["process"]):
        _LOGGER.warning(
            "TensorFlow had another seed when the snapshot was taken: shuffles without a seed now give "
            "another order, so rows of this epoch may be read twice or not at all. Start with %s=%s; "
            "--snapshot-dir sets it by itself.",
            environment.SEED,
            snapshot.info.notes.get("seed"),
        )


def _keras_seed() -> Any:
    """The state of Keras's own seed generator, if it has been made."""
    generator = compat.global_state.get_global_attribute(compat.GLOBAL_SEED_GENERATOR)
    return None if generator is None else np.asarray(generator.state.numpy())


def _restore_random(keras: Any, process: Any) -> None:
    if keras is not None:
        compat.global_seed_generator().state.assign(keras)
    restore_generators(process)


def _stop(model: Any, saved: Saved) -> None:
    model.stop_training = saved.state


def _restore_history(history: Any, saved: Saved) -> None:
    epochs, logs = saved.state
    history.history.clear()
    history.history.update(decode(logs, saved.arrays))
    history.epoch = list(epochs)


def meta_of(
    world: World,
    manager: SnapshotManager,
    fit_call: int,
    cursor: Cursor,
    metrics: Mapping[str, object],
    *,
    ends_fit: bool,
) -> SnapshotMeta:
    """What is said about a snapshot besides its parts.

    Args:
        world: The job.
        manager: Of the snapshots.
        fit_call: The number of the call of `fit`, from 0.
        cursor: Where that stands in its data.
        metrics: Notes on the newest epoch that has ended (`noted_metrics`).
        ends_fit: Whether it has come to its end.
    """
    notes = {
        "seed": world.identity.seed,
        ENDS_FIT: ends_fit,
        "steps_in_epoch": cursor.step,
        TAKEN_AT: time.time(),
        "generation": world.identity.generation,
        **metrics,
        **manager.notes,
    }
    return SnapshotMeta(epoch=cursor.epoch, fit_call=fit_call, world_size=manager.group.size, notes=notes)


def refuse_another_model(info: SnapshotInfo, index: int, num_models: int) -> None:
    """Whether a snapshot is of the model with that index in a job that trains so many.

    Raises:
        ConfigurationError: it is not.
    """
    noted: Any = info.notes.get(MODEL, [0, 1])
    if [*noted] != [index, num_models]:
        raise ConfigurationError(
            f"the snapshot {info.path} is of model {noted[0] + 1} of {noted[1]}, but these workers train model "
            f"{index + 1} of {num_models}. Use another snapshot directory, or train as many models as when the "
            "snapshot was taken. [other-model]"
        )


def noted_metrics(logs: Mapping[str, Any], epoch: int) -> dict[str, object]:
    """The notes of a snapshot on `epoch` (from 0), which has ended with `logs`: all of these that are one number."""
    return {METRICS: numbers_of(logs), METRICS_EPOCH: epoch}


def metrics_in(notes: Mapping[str, object]) -> dict[str, object]:
    """What `noted_metrics` had given for the notes of a snapshot."""
    return {name: notes[name] for name in (METRICS, METRICS_EPOCH) if name in notes}
