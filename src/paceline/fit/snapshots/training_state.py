"""`paceline.TrainingState`: snapshots for custom training loops."""

import functools
import logging
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.cluster.evaluator_task import is_evaluator
from paceline.comm.group import Reduction
from paceline.comm.world import current_world
from paceline.data.compat import dataset_of
from paceline.data.order.iterator_state import NoIteratorStateError, iterator_state, restore_iterator
from paceline.data.own_rows.division import form_of
from paceline.errors import EXIT_PREEMPTED, ConfigurationError
from paceline.events.bus import bus
from paceline.events.worker_events import FitEnded, Preempted, StepDone, TrainingResumed
from paceline.fit.compat import accumulated_gradients
from paceline.fit.snapshots.fit_parts import random_part
from paceline.fit.snapshots.model_state import look_again, unlisted_part
from paceline.resilience.attributes import encode_captured, restore
from paceline.resilience.manager import SnapshotManager
from paceline.resilience.object_state import decode
from paceline.resilience.parts import DATA_GROUPS, Arrays, Layout, Part, Saved, Scope, capture
from paceline.resilience.saved_variables import are_sums, variables_part
from paceline.resilience.schedule import preemption_of
from paceline.store.manifest import SnapshotMeta
from paceline.store.retention import METRICS

_LOGGER = logging.getLogger("paceline")

_LEAVING_SECONDS = 6.0
_PREVIOUS_SECONDS = 120.0
"""How long a save waits for the one before."""
_STATE, _FORM = "state", "form"


class TrainingState:
    """The state of a custom training loop, saved in snapshots and restored after a failure.

        data = iter(dataset.repeat())
        state = paceline.TrainingState("snapshots/run-7", model=model, optimizer=optimizer, loss=mean_loss, data=data)
        for step in range(state.restore(), 200):
            train_step(next(data))
            if step % 50 == 49:
                state.save(step + 1)
        state.close()

    Weights and optimizers are written by the chief; metrics, iterators, random generators and other objects by each
    rank. `restore` and `save` are collective: all ranks call them at the same step. If the job is told to stop
    (SIGTERM, SIGUSR1), all ranks exit in the next `save` with code 75.

    Args:
        directory: On a file system that all hosts share, or an object store's URL; for this job alone.
        keep: How many snapshots are kept, or policies, such as ``"2,best:3:val_loss"`` (``docs/snapshots.md``).
        **parts: By name, built: Keras models (with the `tf.Variable`s in their layers' attributes), optimizers and
            metrics, `tf.Variable`s, `tf.data` iterators, and any object with ``state_dict()`` and
            ``load_state_dict(state)``, or with attributes that a snapshot can store.

    Raises:
        ConfigurationError: another job uses the directory, some host does not see it, or its newest snapshot does not
            fit the parts; in `restore`.
        ValueError: `keep` is none of the policies; the state of an iterator cannot be stored, in `save`.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep: int | str = 3, **parts: Any) -> None:
        if is_evaluator(os.environ):
            raise ConfigurationError(
                "this process is the evaluator of a job. It follows model.fit, but this script trains in a loop of its "
                "own, with a TrainingState. Start the job without --evaluator. [evaluator]"
            )
        self._world = current_world()
        layout = Layout(self._world.rank, self._world.models)
        self._manager = SnapshotManager(os.fspath(directory), self._world, layout, keep)
        of_parts = [
            part for name, thing in parts.items() for part in parts_of(name, thing, is_chief=self._world.is_chief)
        ]
        self._parts = [*of_parts, random_part()]
        self._is_open = False
        self._step, self._saved_at = 0, time.monotonic()

    def restore(self) -> int:
        """Puts all parts where the newest snapshot has them; how many steps it holds, 0 without one. Collective.

        From here on signals wait for the next `save`.
        """
        self._open()
        info = self._manager.found
        if info is None:
            if self._world.identity.generation > 1:
                bus.emit(TrainingResumed(self._world.rank, 0, 0, self._world.identity.generation, ""))
            return 0
        self._manager.saved(info).restore(self._parts)
        self._step, self._saved_at = info.step, time.monotonic()
        bus.emit(TrainingResumed(self._world.rank, info.step, 0, self._world.identity.generation, info.name))
        if self._world.is_chief:
            _LOGGER.info("resuming from the snapshot of step %d (%s)", info.step, info.path)
        return info.step

    def save(self, step: int, metrics: Mapping[str, float] | None = None) -> None:
        """Takes a snapshot; it is written while training goes on, and the next save waits for that. Collective.

        Args:
            step: How many steps of the job are done.
            metrics: Of the state that is saved, by name: what ``best:3:val_loss`` in `keep` compares.

        Raises:
            SystemExit: some rank was told to stop; the snapshot is written.
        """
        self._open()
        identity, numbers = self._world.identity, {name: float(value) for name, value in (metrics or {}).items()}
        notes = {"seed": identity.seed, "generation": identity.generation, METRICS: numbers}
        if len(self._world.models) > 1:
            notes[DATA_GROUPS] = self._world.models
        meta = SnapshotMeta(epoch=0, fit_call=0, world_size=self._world.size, notes=notes)
        now = time.monotonic()
        bus.emit(StepDone(self._world.rank, step, 0, step - self._step, now - self._saved_at))
        self._step, self._saved_at = step, now
        self._manager.settle(_PREVIOUS_SECONDS)  # what the script asks for is not left out, as it is on a schedule
        self._manager.take(step, meta, capture(self._parts, self._manager.layout))
        flags = self._world.flags
        leaving = np.array(flags.preemption_requested, np.int8)
        if self._world.group.all_reduce([leaving], Reduction.MAX)[0]:
            bus.emit(Preempted(self._world.rank, step))  # first: from here on the launcher misses no steps
            self._manager.settle(_LEAVING_SECONDS, is_leaving=True)
            raise SystemExit(EXIT_PREEMPTED)

    def close(self) -> None:
        """Waits until the last snapshot is written, and gives the directory back; from here on no step is missed."""
        if self._is_open:
            self._is_open = False
            bus.emit(FitEnded(self._world.rank, self._step))  # first: writing makes no steps
            self._manager.close()
            preemption_of(self._world).leave_fit()

    def _open(self) -> None:
        if not self._is_open:
            self._manager.open()
            self._is_open = True
            preemption_of(self._world).enter_fit()


def parts_of(name: str, thing: Any, *, is_chief: bool) -> Iterator[Part]:
    """What a snapshot holds of an object that the script has registered; in the order in which it is restored."""
    if isinstance(thing, tf.distribute.DistributedValues):  # a sum is read by all ranks together
        yield variables_part(name, Scope.RANK, lambda: [thing], f"{name}: variable")
    elif isinstance(thing, (keras.Model, keras.Layer, keras.optimizers.Optimizer, keras.Variable, tf.Variable)):
        yield variables_part(name, Scope.GROUP, lambda: _shared_variables(thing), f"{name}: variable")
    elif isinstance(thing, tf.data.Iterator):
        yield Part(
            name,
            Scope.RANK,
            lambda arrays: _iterator_state(thing, arrays),
            lambda saved: _restore_iterator(thing, saved, name),
        )
    elif not isinstance(thing, keras.Metric):
        yield Part(
            name,
            Scope.RANK,
            lambda arrays: encode_captured(thing, arrays.captured.live, name),
            lambda saved: restore(thing, saved.value),
        )
    if isinstance(thing, keras.Layer):
        yield unlisted_part(f"{name}.unlisted", lambda: look_again(thing), is_chief=is_chief)
    if isinstance(thing, (keras.Metric, keras.optimizers.Optimizer)):
        of_this_rank = functools.partial(_of_this_rank, thing)
        yield variables_part(f"{name}.sums", Scope.SUM, lambda: of_this_rank()[0], f"{name}: variable")
        yield variables_part(f"{name}.own", Scope.RANK, lambda: of_this_rank()[1], f"{name}: variable")


def _iterator_state(iterator: Any, arrays: Arrays) -> Any:
    try:
        return {_STATE: arrays.value(iterator_state(iterator), _STATE), _FORM: form_of(dataset_of(iterator))}
    except NoIteratorStateError as fault:
        raise ValueError(
            f"{arrays.name}: the state of this iterator cannot be stored: its dataset has state of its own "
            f"({fault}). Register an object with state_dict() and load_state_dict() that stores how many "
            "batches were read, and skip that many batches when you resume. [iterator-state]"
        ) from fault


def _restore_iterator(iterator: Any, saved: Saved, name: str) -> None:
    if saved.state[_FORM] != form_of(dataset_of(iterator)):
        raise ConfigurationError(
            f"{name}: the snapshot has the position of an iterator over a dataset that was divided among the ranks in "
            "another way, by another version of Paceline or by a script with other maps. Start with a new directory, "
            "or resume with the version and the script that wrote the snapshot. [iterator-state]"
        )
    restore_iterator(iterator, decode(saved.state[_STATE], saved.arrays))


def _of_this_rank(thing: Any) -> tuple[list[Any], list[Any]]:
    """What a metric or an optimizer has from this rank's rows: sums of gradients are not summed over ranks yet."""
    if isinstance(thing, keras.Metric):
        return are_sums(thing.variables, ())
    return are_sums(_sums_of_gradients(thing), accumulated_gradients(thing))


def _sums_of_gradients(optimizer: Any) -> list[Any]:
    found = []
    while isinstance(optimizer, keras.optimizers.Optimizer):
        found += accumulated_gradients(optimizer)
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return found


def _shared_variables(thing: Any) -> list[Any]:
    if isinstance(thing, (keras.Variable, tf.Variable)):
        return [thing]
    own = (*getattr(thing, "metrics_variables", ()), *_sums_of_gradients(thing))
    inner = getattr(thing, "inner_optimizer", None)
    found = [*thing.variables, *(() if inner is None else inner.variables)]
    known = {id(variable) for variable in own}
    return list({id(variable): variable for variable in found if id(variable) not in known}.values())
