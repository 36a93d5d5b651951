"""Saves and loads the whole model, which no rank has.

The chief writes, and fetches each variable when its value is written.

    chief: Keras writes variable after variable       stage 1: answers until the chief is done
           reads one of stage 1 ──────── which? ────────►
                                ◄─────── its value ──────

So no more than one variable of another stage is in the chief's memory at a time, besides the file. Keras writes the
optimizer, too: for the time of the save, the chief has one for all weights, of which it fetches what is elsewhere.
Collective: every rank calls `model.save`, as it does under the other strategies. So does `TensorBoard`, for histograms.

Each rank reads a file by itself, and passes over what is another stage's, of the optimizer, too.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.comm.group import Group
from paceline.pipeline.deferred_variables import read_through, without_values
from paceline.pipeline.pipelined_model import PipelinedModel, is_divided, pipelined
from paceline.pipeline.stage_optimizers import by_path, optimizer_of_all
from paceline.strategy.pipeline import PipelineStrategy

Function = Callable[..., Any]

_TAG = 32_000
"""Above those of any plan."""
_DONE = -1


def with_all_values(model: Any, strategy: PipelineStrategy, write: Callable[[], Any]) -> None:
    """The chief calls `write`, which may read every variable of the model and its optimizer. Collective."""
    group: Group = strategy.pipeline
    strategy.fit_group.barrier()  # names a rank that saves alone: what is gathered below may look like others' words
    pipeline = pipelined(model)
    if strategy.replica == 0:  # the others have the same
        whole = _Whole(model, pipeline, group)
        if group.rank == 0:
            try:
                with whole.readable():
                    write()
            finally:
                whole.end()
        else:
            whole.answer()
    strategy.fit_group.barrier()


def loaded_by_each(model: Any, read: Callable[[], Any]) -> Any:
    """Calls `read`, which assigns each variable of a model and its optimizer: those of other stages go nowhere."""
    own = getattr(model, "optimizer", None)
    if not is_divided(model) or own is None or not own.built:
        return read()
    whole, known = optimizer_of_all(model), by_path(own.variables)
    for variable in whole.variables:
        if variable.path in known:
            variable._value = known[variable.path]._value
    with _in_place_of(own, whole, model), without_values():
        return read()


@contextlib.contextmanager
def _in_place_of(own: Any, whole: Any, model: Any) -> Iterator[None]:
    """While this lasts, the model has the optimizer for all weights."""
    object.__setattr__(model, "optimizer", whole)
    try:
        yield
    finally:
        object.__setattr__(model, "optimizer", own)


class _Whole:
    """All variables of a model and its optimizer, numbered alike on all ranks. Making one is collective.

    Args:
        model: Built.
        pipeline: Its.
        group: The stages.
    """

    def __init__(self, model: Any, pipeline: PipelinedModel, group: Group) -> None:
        self._model, self._group = model, group
        self._optimizer = optimizer_of_all(model)
        self._variables = [variable for variable, _ in pipeline.stages_of]
        self._owners = [stages[0] for _, stages in pipeline.stages_of]
        self._own: dict[int, Any] = dict(enumerate(self._variables))
        if self._optimizer is not None:
            self._add_optimizer(model.optimizer)

    def _add_optimizer(self, own: Any) -> None:
        """The optimizer's variables are known by their paths, as each stage has those for its own weights."""
        paths = json.dumps([variable.path for variable in own.variables]).encode()
        of_stages = [json.loads(text.tobytes()) for text in self._group.all_gather(np.frombuffer(paths, np.uint8))]
        by_path = {variable.path: variable for variable in own.variables}
        for variable in self._optimizer.variables:
            owner = next(stage for stage, known in enumerate(of_stages) if variable.path in known)
            if variable.path in by_path:
                variable._value = by_path[variable.path]._value
                self._own[len(self._variables)] = variable
            self._variables.append(variable)
            self._owners.append(owner)

    @contextlib.contextmanager
    def readable(self) -> Iterator[None]:
        """While this lasts, the chief can read every variable, and the model has the optimizer for all weights."""
        elsewhere = [number for number, owner in enumerate(self._owners) if owner != 0]
        own_optimizer = getattr(self._model, "optimizer", None)
        with contextlib.ExitStack() as stack:
            for number in elsewhere:
                stack.enter_context(read_through(self._variables[number], self._fetching(number)))
            stack.enter_context(_in_place_of(own_optimizer, self._optimizer, self._model))
            yield

    def _fetching(self, number: int) -> Function:
        def fetch(shape: Any, dtype: Any = None) -> Any:
            owner = self._owners[number]
            arrival = self._group.recv(shape, tf.as_dtype(dtype).as_numpy_dtype, owner, _TAG)
            self._group.send(np.array([number], np.int64), owner, _TAG).wait()
            return tf.constant(arrival.wait())

        return fetch

    def end(self) -> None:
        """The chief fetches no more."""
        for stage in range(1, self._group.size):
            self._group.send(np.array([_DONE], np.int64), stage, _TAG).wait()

    def answer(self) -> None:
        """Sends the chief what it asks for, until it is done."""
        while True:
            [number] = self._group.recv([1], np.int64, 0, _TAG).wait()
            if number == _DONE:
                return
            variable = self._own[int(number)]
            value = np.asarray(tf.cast(variable._value, keras.backend.standardize_dtype(variable.dtype)))
            self._group.send(value, 0, _TAG).wait()
