"""Real operations with their values: what Keras's own steps execute."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from .contents import Content, Items, content, kept, tensor, type_of_items
from .interpreter import attributes, calls_functions, execute_operation, run
from .steps import ROWS, TracedStep

Shape = tuple[int, ...]

Dims = tuple[tuple[int, int | None], ...]
"""The sizes of each dimension with 5 and with 7 rows; None where the other run has no such tensor."""


@dataclass(frozen=True)
class Value:
    """A tensor of one operation, as it was with 5 rows."""

    dtype: str
    dims: Dims
    """Of a variable's handle: what the variable holds; of a list of tensors: its length, then those of its tensors."""
    content: Content = field(repr=False)
    with_more_rows: np.ndarray | None = field(default=None, repr=False)
    """Whole numbers, if they are few: what they were with 7 rows. A shape shows by it which of its numbers are rows."""
    constant: bool = False
    """A constant of the graph, known when it is traced."""


@dataclass(frozen=True)
class Instance:
    """An operation as Keras executes it."""

    type: str
    attrs: dict[str, Any] = field(repr=False)
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    assigned: dict[int, Content] = field(repr=False)
    """What a variable holds afterwards, by the index of the input that is its handle."""
    random: str | None
    """`kernel`: random numbers come from the kernel's state; `seed`: they follow from its inputs."""
    where: tuple[str, str, str]
    """The class of Keras, its options and inputs, and the operation's path through nested functions."""

    @property
    def calls_functions(self) -> bool:
        """Whether it is a call, branch or loop, whose operations are instances of their own."""
        return calls_functions(self.type)

    @property
    def runs_alone(self) -> bool:
        """Whether all that it needs is at hand to execute it by itself."""
        return not self.calls_functions and all(value.content is not None for value in self.inputs)

    def run(self, inputs: Sequence[Content] | None = None) -> tuple[list[Content], dict[int, Content]]:
        """Executes it by itself, with its own inputs or others: its outputs, and its variables afterwards."""
        contents = [value.content for value in self.inputs] if inputs is None else inputs
        tensors = [tensor(item, value.dtype) for item, value in zip(contents, self.inputs, strict=True)]
        outputs = execute_operation(self.type, self.attrs, tensors, len(self.outputs))
        kinds = [value.content.dtype if isinstance(value.content, Items) else None for value in self.outputs]
        shown = [content(output, kind) for output, kind in zip(outputs, kinds, strict=True)]
        return shown, {index: content(tensors[index]) for index in self.assigned}


@dataclass(frozen=True)
class StepInput:
    """An input of a step: part of its batch, or captured."""

    step: tuple[str, str]
    dtype: str
    dims: Dims

    @property
    def rows(self) -> bool:
        """Whether its first dimension is the rows of the batch."""
        return self.dims[:1] == (ROWS,)


@dataclass
class Corpus:
    """Operations, each of its kind once, and the classes of Keras that have them."""

    instances: list[Instance] = field(default_factory=list)
    classes: list[set[str]] = field(default_factory=list)
    """Per instance, the classes whose steps execute one like it."""
    inputs: list[StepInput] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    """The classes of which a step was traced and run."""
    refusals: dict[str, list[str]] = field(default_factory=dict)
    """The errors of each class that some arguments or inputs did not fit."""
    _places: dict[Any, int] = field(default_factory=dict, repr=False)

    def add(self, step: TracedStep) -> None:
        """Runs a step with both sizes of batch and takes what it executes."""
        captured = list(step.function.captured_inputs)
        few, many = ([*step.batch(rows), *captured] for rows in ROWS)
        outlined, executed = _Outlined(), _Executed(step)
        with kept(captured):
            run(step.function.graph, many, outlined)
        with kept(captured):
            run(step.function.graph, few, executed)
        for instance in executed.instances(outlined.found):
            self._take(instance)
        self.inputs += [
            StepInput((step.name, step.variant), one.dtype.name, _dims(_shape(content(one)), _shape(content(other))))
            for one, other in zip(few, many, strict=True)
        ]
        self.made.add(step.name)

    def _take(self, instance: Instance) -> None:
        place = self._places.setdefault(_kind(instance), len(self.instances))
        if place == len(self.instances):
            self.instances.append(instance)
            self.classes.append(set())
        self.classes[place].add(instance.where[0])


@dataclass(frozen=True)
class _Outline:
    """What is kept of a tensor in the run with 7 rows."""

    shape: Shape
    numbers: np.ndarray | None


Outlines = dict[str, tuple[list[_Outline], list[_Outline]]]
"""Of each operation's inputs and outputs, by the operation's path."""


class _Outlined:
    """Observes the outlines of each operation's inputs and outputs."""

    def __init__(self) -> None:
        self.found: Outlines = {}

    def __call__(
        self, where: str, operation: tf.Operation, inputs: Sequence[tf.Tensor], result: Callable[[], Any]
    ) -> Sequence[tf.Tensor]:
        shown = _shown(inputs, operation.inputs)
        outputs = result()
        self.found[where] = tuple(list(map(_outline, each)) for each in (shown, _shown(outputs, operation.outputs)))
        return outputs


class _Executed:
    """Observes operations with their values."""

    def __init__(self, step: TracedStep) -> None:
        self._step = step
        self._found: list[tuple[str, tf.Operation, list[Content], list[Content], dict[int, Content]]] = []

    def __call__(
        self, where: str, operation: tf.Operation, inputs: Sequence[tf.Tensor], result: Callable[[], Any]
    ) -> Sequence[tf.Tensor]:
        shown = _shown(inputs, operation.inputs)
        outputs = result()
        handles = [index for index, item in enumerate(inputs) if item.dtype == tf.resource and shown[index] is not None]
        assigned = {index: content(inputs[index]) for index in handles}
        self._found.append((where, operation, shown, _shown(outputs, operation.outputs), assigned))
        return outputs

    def instances(self, outlines: Outlines) -> list[Instance]:
        """All that was executed."""
        return [
            Instance(
                operation.type,
                attributes(operation),
                _values(inputs, operation.inputs, outlines.get(where, (None, None))[0]),
                _values(outputs, operation.outputs, outlines.get(where, (None, None))[1]),
                assigned,
                _random(operation),
                (self._step.name, self._step.variant, where),
            )
            for where, operation, inputs, outputs, assigned in self._found
        ]


def _shown(tensors: Sequence[tf.Tensor], symbols: Sequence[tf.Tensor]) -> list[Content]:
    return [content(item, type_of_items(symbol)) for item, symbol in zip(tensors, symbols, strict=True)]


def _outline(shown: Content) -> _Outline:
    few_numbers = isinstance(shown, np.ndarray) and shown.dtype.kind == "i" and shown.size <= 16
    return _Outline(_shape(shown), shown if few_numbers else None)


def _values(shown: list[Content], symbols: Sequence[tf.Tensor], outlines: list[_Outline] | None) -> tuple[Value, ...]:
    return tuple(
        Value(
            symbol.dtype.name,
            _dims(_shape(item), None if outline is None else outline.shape),
            item,
            None if outline is None else outline.numbers,
            symbol.op.type == "Const",
        )
        for item, symbol, outline in zip(shown, symbols, outlines or [None] * len(shown), strict=True)
    )


def _kind(instance: Instance) -> Any:
    """What makes two instances alike: all but the numbers, of which only constant integers count."""
    attrs = tuple(
        (name, value.shape if isinstance(value, np.ndarray) else value)
        for name, value in instance.attrs.items()
        if name not in ("seed", "seed2")
    )
    if instance.calls_functions:
        attrs = ()
    inputs = tuple(
        (value.dtype, value.dims, value.content.tobytes() if value.constant and value.dtype.startswith("int") else b"")
        for value in instance.inputs
    )
    return instance.type, attrs, inputs, tuple((value.dtype, value.dims) for value in instance.outputs)


def _random(operation: tf.Operation) -> str | None:
    if operation.op_def.is_stateful and {"seed", "seed2"} <= set(operation.node_def.attr):
        return "kernel"
    if {"seed", "key", "counter"} & {argument.name for argument in operation.op_def.input_arg}:
        return "seed"
    return None


def _dims(few: Shape, many: Shape | None) -> Dims:
    return tuple(zip(few, many if many is not None and len(many) == len(few) else (None,) * len(few), strict=True))


def _shape(shown: Content) -> Shape:
    return () if shown is None else shown.shape
