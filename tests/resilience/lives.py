"""Several lives of one job in one process: each begins as a new process would, and dies where it is told to.

A death is an exception that no `fit` survives; what a real SIGKILL leaves behind is tested in `test_killed.py`.
"""

import hashlib
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.comm.step_flags import StepFlags
from paceline.comm.world import current_world
from paceline.data.indexed import readings
from paceline.data.order import seeds
from paceline.errors import EXIT_PREEMPTED
from paceline.fit.snapshots import resumable_fit
from paceline.resilience import schedule
from paceline.strategy.operation_seeds import use_job_seed

SEED = 77
EVERY_STEPS = 3


class Death(BaseException):
    """The end of a life."""


class Dies(keras.callbacks.Callback):
    """The first callback of each job: counts what happens in this life, and ends it there."""

    same_on_all_ranks = True

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        _happens("begin", batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        _happens("step", batch)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        _happens("test", batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        _happens("epoch", epoch)

    def on_train_end(self, logs: Any = None) -> None:
        _happens("end", 0)


class _Life:
    counts: dict[str, int]
    death: tuple[str, int] | None


_life = _Life()


def _happens(what: str, number: int) -> None:
    _life.counts[what] = _life.counts.get(what, 0) + 1
    if _life.death is None or _life.death[1] != _life.counts[what]:
        return
    if _life.death[0] == what:
        die_now()
    if _life.death[0] == {"step": "told", "test": "told in test"}.get(what):
        signal.raise_signal(signal.SIGTERM)


def die_now() -> None:
    """What was handed over is written first: which snapshot is there must not depend on the disk."""
    for manager in resumable_fit._process.managers.values():
        assert manager.finish(20)
    raise Death


@contextmanager
def _variables(directory: Path | None) -> Iterator[None]:
    wanted = (
        {}
        if directory is None
        else {
            "PACELINE_SNAPSHOT_DIR": str(directory),
            "PACELINE_SNAPSHOT_EVERY": str(EVERY_STEPS),
        }
    )
    before = {name: os.environ.pop(name, None) for name in ("PACELINE_SNAPSHOT_DIR", "PACELINE_SNAPSHOT_EVERY")}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def live(job: Callable[[], Any], directory: Path | None, death: tuple[str, int] | None = None) -> Any:
    """Runs `job` as a process of its own would; what it returns, or None if it died."""
    keras.backend.clear_session()
    keras.config.set_dtype_policy("float32")
    resumable_fit._process = resumable_fit._Process()
    random.seed(SEED)
    np.random.seed(SEED)
    seeds.set_num_default_generators(0)
    readings._shared = readings._Shared()
    tf.random.set_seed(None)
    use_job_seed(SEED)
    current_world().flags = StepFlags()
    schedule._watched.clear()
    _life.counts, _life.death = {}, death
    try:
        with _variables(directory):
            return job()
    except Death:
        return None
    except SystemExit as end:
        if end.code != EXIT_PREEMPTED:
            raise
        return None
    finally:
        for manager in resumable_fit._process.managers.values():
            manager.close()


def lives(
    job: Callable[[], Any], directory: Path, *deaths: tuple[str, int], damage: Callable[[Path], None] | None = None
) -> Any:
    """What the last life returns, after one that dies at each of `deaths`, the first of which does `damage`."""
    shutil.rmtree(directory, ignore_errors=True)
    for death in deaths:
        assert live(job, directory, death) is None, f"no life ended at {death}"
        if damage is not None:
            damage(directory)
            damage = None
    return live(job, directory)


def num_steps() -> int:
    """How many executions of steps the last life had."""
    return _life.counts["step"]


def told(*models: Any, **more: Any) -> dict[str, Any]:
    """What a job comes to: every bit of its models and optimizers, their histories, and whatever else is given."""
    variables = [variable for model in models for variable in (*model.variables, *_optimizer_variables(model))]
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(variable.numpy()).tobytes() for variable in variables))
    histories = [
        {
            "epoch": model.history.epoch,
            **{name: list(map(repr, map(_plain, values))) for name, values in model.history.history.items()},
        }
        for model in models
    ]
    return {"weights": digest.hexdigest()[:16], "histories": histories, **more}


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()


def _optimizer_variables(model: Any) -> list[Any]:
    return list(model.optimizer.variables)
