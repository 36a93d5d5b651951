"""A `tf.function` of a user's own that trains or measures: its graph is divided over the ranks (`spmd/`).

    a call from eager code ─► TensorFlow traces the function, as ever
                                   │ were gradients of variables taken in it, or metrics updated?
                       no: as ever ┴ yes: it is a step
                                   ▼
    the batch, which is whole ─► own rows ─► the divided graph ─► outputs and variables as one worker has them

The trace is plain TensorFlow's, so seeds, side effects in Python and retracing are, too. Rows are the tensors among the
arguments that share a first dimension. That is a guess which only speed depends on: the divided graph computes what the
traced one does, whatever is cut.

A function that only hands gradients to an optimizer has no rows: it is called as ever, and its variables are compared.
One that is called in another one's graph is a part of that one. In `fit`, in `strategy.run` and in the functions
of datasets nothing happens.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from paceline.comm.world import current_world
from paceline.data.batch_rows import local_slice
from paceline.fit import batch_statistics, own_loops
from paceline.fit.followers_writer import traced_as_on_chief
from paceline.fit.same_steps import compare_steps
from paceline.fit.strategies import drop_in_strategy
from paceline.fit.whole_steps import WholeStep
from paceline.spmd.partition import Partitioner
from paceline.strategy import compat
from paceline.strategy.as_one_worker import as_one_worker
from paceline.strategy.fused_updates import fused_updates
from paceline.strategy.step_messages import StepMessages

Function = Callable[..., Any]

_TAKES, _MEASURES, _UPDATES = "_paceline_takes_gradients", "_paceline_measures", "_paceline_updates"
_STEP = "_paceline_step"
_FEWEST_ROWS = 2


def note_gradients() -> None:
    """The function that is being traced takes gradients of variables, and so do those around it."""
    _note(_TAKES)


def note_metric() -> None:
    """A metric is updated; if a function is being traced, in it."""
    if not tf.executing_eagerly() and own_loops.run_alike():
        _note(_MEASURES)


def note_update() -> None:
    """The function that is being traced calls an optimizer, and so do those around it."""
    _note(_UPDATES)


def _note(what: str) -> None:
    graph = compat.get_default_graph()
    while graph is not None and graph.building_function:
        setattr(graph, what, True)
        graph = getattr(graph, "outer_graph", None)


def called(tensorflow_call: Function) -> Function:
    """TensorFlow's `ConcreteFunction._call_flat`, by which each call of a traced function goes. Collective in steps."""

    def _call_flat(self: Any, tensor_inputs: list[Any], captured_inputs: list[Any]) -> Any:
        notes = [what for what in (_TAKES, _MEASURES, _UPDATES) if hasattr(self.graph, what)]
        if not notes:
            return tensorflow_call(self, tensor_inputs, captured_inputs)
        if not tf.executing_eagerly():
            for what in notes:
                _note(what)  # its own trace is older than the one that it is called in
            return tensorflow_call(self, tensor_inputs, captured_inputs)
        if not own_loops.run_alike():
            return tensorflow_call(self, tensor_inputs, captured_inputs)
        if not hasattr(self, _STEP):
            setattr(self, _STEP, _OwnStep(self))
        whole = lambda: tensorflow_call(self, tensor_inputs, captured_inputs)  # noqa: E731
        return getattr(self, _STEP).called(tensor_inputs, whole)

    return _call_flat


class _OwnStep:
    """A traced function that trains.

    Args:
        traced: The concrete function.
    """

    def __init__(self, traced: Any) -> None:
        self._graph = traced.graph
        self._type = traced.function_type
        self._name = traced.graph.name
        self._strategy = drop_in_strategy()
        self._num_calls = 0
        self._divided: dict[tuple[bool, ...], Any] = {}
        self._traced = traced
        self._world = current_world()
        self._words = WholeStep(self._name, self._world)

    def called(self, inputs: list[Any], whole: Function) -> Any:
        """What the function returns for these inputs. Collective.

        Args:
            inputs: Its flat tensors, those that it captures left out; equal on all ranks.
            whole: Calls it as TensorFlow does.

        Raises:
            DesynchronizedError: the ranks have different inputs, or different variables.
        """
        own_loops.refuse_other_threads()
        assert self._strategy is not None
        group = self._strategy.group
        total, is_rows = _rows_among(inputs, self._graph.inputs)
        has_work = self._has_work(total)
        self._compare(inputs, is_divided=has_work, is_new=is_rows not in self._divided)
        divided = self._divided_by(is_rows, total) if has_work else None
        if divided is None:
            return whole()
        own_loops.note_divided()
        begin, end = local_slice(total, group.rank, group.size)
        own = [one[begin:end] if rows else one for one, rows in zip(inputs, is_rows, strict=True)]
        outputs = divided(tf.constant(total, tf.int64), tf.constant(begin, tf.int64), *own)
        return self._type.pack_output(list(outputs))

    def _has_work(self, total: int) -> bool:
        """Whether so many rows can be divided; else it is said why not, unless there is nothing to divide."""
        trains = hasattr(self._graph, _TAKES)
        if not trains and not hasattr(self._graph, _MEASURES):
            return False
        if compat.may_record():
            if trains:
                self._words.say("it is called while a tf.GradientTape records. Take the gradients in the tf.function")
            return False
        if not total and trains:
            self._words.say("none of its arguments is a batch. Pass the batch as tensors")
        return total >= _FEWEST_ROWS

    def _divided_by(self, is_rows: tuple[bool, ...], total: int) -> Any:
        """The function with these inputs divided; None, which is said once, if it cannot be: all ranks fail alike."""
        if is_rows not in self._divided:
            self._divided[is_rows] = self._made(is_rows, total)
        return self._divided[is_rows]

    def _made(self, is_rows: tuple[bool, ...], total: int) -> Any:
        assert self._strategy is not None
        group, collectives = self._strategy.group, self._strategy.extended.collectives
        if len(self._graph.inputs) - len(self._graph.captures) != len(is_rows):
            self._words.say("it captures what is computed anew in each call")
            return None
        sizes = [one.shape[0] for one, rows in zip(self._graph.inputs, is_rows, strict=False) if rows]
        is_for_one_length = any(size is not None for size in sizes)
        compare_steps(self._traced, self._name, group)

        def divide() -> Any:
            with as_one_worker(), traced_as_on_chief():
                partitioner = Partitioner(
                    StepMessages(group.rank, collectives), fused_updates(tells=self._world.is_chief)
                )
                divided = partitioner.divided(self._traced, is_rows, total if is_for_one_length else None)
                function = divided.get_concrete_function()
            if not self._divided:
                batch_statistics.say(batch_statistics.layers_among(partitioner.operations(self._traced)), self._world)
            return function

        return self._words.unless_divided(divide)

    def _compare(self, inputs: Sequence[Any], *, is_divided: bool, is_new: bool) -> None:
        self._num_calls += 1
        if not own_loops.is_compared(self._num_calls) and not (is_divided and is_new):
            return
        assert self._strategy is not None
        group = self._strategy.group
        data = [one for one in inputs if one.dtype not in (tf.resource, tf.variant)]
        own_loops.compare_data(self._name, data, group, is_divided=is_divided)
        own_loops.compare_numbers(f"variables of {self._name}", _numbers_of(self._graph), group)


def _numbers_of(graph: Any) -> list[Any]:
    """The values of the floating variables that a graph uses, in the order in which it first did so."""
    by_handle = {id(variable.handle): variable for variable in graph.variables}  # themselves they come in any order
    variables = (by_handle.get(id(outside)) for outside, _ in graph.captures)
    return [one.read_value() for one in variables if one is not None and one.dtype.is_floating]


def _rows_among(inputs: Sequence[Any], traced: Sequence[Any]) -> tuple[int, tuple[bool, ...]]:
    """How many rows the batch has, and which inputs are divided: those with the first size that most of them share.

    Args:
        inputs: Eager tensors.
        traced: The placeholders for them.
    """
    sizes = [_first_size(one, placeholder) for one, placeholder in zip(inputs, traced, strict=False)]
    counted = Counter(size for size in sizes if size)
    if not counted:
        return 0, (False,) * len(sizes)
    [(rows, _)] = counted.most_common(1)  # of several, the one that comes first
    return rows, tuple(size == rows for size in sizes)


def _first_size(one: Any, placeholder: Any) -> int | None:
    if one.dtype in (tf.resource, tf.variant) or not one.shape.rank or placeholder.shape.rank is None:
        return None
    size: int = one.shape[0]
    return size
