"""Runs a traced function operation by operation, and shows each operation with its values to an observer.

What runs is what TensorFlow would run: the operations that outputs or side effects need, in an order that data and
control edges allow. Calls, branches and loops are entered; of a loop's turns the first two are shown.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import function_def_to_graph, op_def_registry

Observer = Callable[[str, tf.Operation, Sequence[tf.Tensor], Callable[[], Sequence[tf.Tensor]]], Sequence[tf.Tensor]]
"""Given where, the operation, its inputs, and what executes it: executes it and returns its outputs."""

SHOWN_TURNS = 2


def attributes(operation: tf.Operation) -> dict[str, Any]:
    """The attributes that define an operation, as plain values: names of types and functions, shapes, arrays."""
    values = operation.node_def.attr
    return {name: _plain(values[name]) for name in _types_of_attributes(operation.type) if name in values}


def execute_operation(kind: str, attrs: dict[str, Any], inputs: Sequence[Any], outputs: int) -> list[tf.Tensor]:
    """Executes one operation of the attributes that `attributes` gives."""
    if kind == "Const":  # its attribute is a tensor, which eager execution does not take
        return [tf.constant(attrs["value"], attrs["dtype"])]
    types = _types_of_attributes(kind)
    flat = tuple(part for name, value in attrs.items() for part in (name, _for_execution(types[name], value)))
    results = execute.quick_execute(kind, outputs, list(inputs), flat, context.context())
    return list(results) if outputs else []


def calls_functions(kind: str) -> bool:
    """Whether operations of a type take functions, or are called by the name of one."""
    return op_def_registry.get(kind) is None or not {"func", "list(func)"}.isdisjoint(
        _types_of_attributes(kind).values()
    )


def run(graph: tf.Graph, arguments: Sequence[tf.Tensor], observe: Observer, where: str = "") -> list[tf.Tensor]:
    """The outputs of a function's graph for these arguments, captured tensors included."""
    values = {id(placeholder): value for placeholder, value in zip(graph.inputs, arguments, strict=True)}
    for operation in _needed(graph):
        if operation.type == "Placeholder":
            continue
        inputs = [values[id(tensor)] for tensor in operation.inputs]
        path = f"{where}/{operation.name}" if where else operation.name
        results = observe(path, operation, inputs, _Execution(operation, inputs, observe, path))
        values |= {id(tensor): value for tensor, value in zip(operation.outputs, results, strict=True)}
    return [values[id(tensor)] for tensor in graph.outputs]


def run_whole(graph: tf.Graph, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The same, unobserved."""
    return run(graph, arguments, _unobserved)


class _Execution:
    """Executes an operation of a graph."""

    def __init__(self, operation: tf.Operation, inputs: Sequence[tf.Tensor], observe: Observer, path: str) -> None:
        self._operation, self._inputs, self._observe, self._path = operation, inputs, observe, path

    def __call__(self) -> list[tf.Tensor]:
        operation, inputs = self._operation, self._inputs
        match operation.type:
            case "PartitionedCall" | "StatefulPartitionedCall":
                return self._call(attributes(operation)["f"], inputs, "")
            case "If" | "StatelessIf":
                branch = "then_branch" if bool(inputs[0]) else "else_branch"
                return self._call(attributes(operation)[branch], inputs[1:], branch)
            case "Case" | "StatelessCase":
                branches = attributes(operation)["branches"]
                index = int(inputs[0])
                taken = index if 0 <= index < len(branches) else len(branches) - 1
                return self._call(branches[taken], inputs[1:], f"branch_{taken}")
            case "While" | "StatelessWhile":
                return self._loop()
            case kind if op_def_registry.get(kind) is None:
                return self._call(kind, inputs, "")
            case kind:
                return execute_operation(kind, attributes(operation), inputs, len(operation.outputs))

    def _loop(self) -> list[tf.Tensor]:
        variables, turn, functions = list(self._inputs), 0, attributes(self._operation)
        while bool(self._call(functions["cond"], variables, f"cond:{turn}", turn)[0]):
            variables = self._call(functions["body"], variables, f"body:{turn}", turn)
            turn += 1
        return variables

    def _call(self, function: str, arguments: Sequence[tf.Tensor], label: str, turn: int = 0) -> list[tf.Tensor]:
        graph = _graph(self._operation.graph, function)
        observe = self._observe if turn < SHOWN_TURNS else _unobserved
        return run(graph, arguments, observe, f"{self._path}/{label}" if label else self._path)


def _graph(caller: tf.Graph, function: str) -> tf.Graph:
    definition = caller._get_function(function)
    if hasattr(definition, "graph"):
        return definition.graph
    with caller.as_default():  # a function of TensorFlow's older kind; it calls others of its caller's
        return function_def_to_graph.function_def_to_graph(definition.definition)


def _unobserved(
    where: str, operation: tf.Operation, inputs: Sequence[tf.Tensor], result: Callable[[], Sequence[tf.Tensor]]
) -> Sequence[tf.Tensor]:
    return result()


def _needed(graph: tf.Graph) -> Iterator[tf.Operation]:
    """What outputs and side effects need, each after all that it needs itself, otherwise in the order of tracing."""
    order = {operation: index for index, operation in enumerate(graph.get_operations())}
    wanted = [*(tensor.op for tensor in graph.outputs), *graph.control_outputs]
    pending, done = sorted(set(wanted), key=order.__getitem__, reverse=True), set()
    while pending:
        operation = pending[-1]
        before = {*(tensor.op for tensor in operation.inputs), *operation.control_inputs} - done
        if operation in done or not before:
            pending.pop()
            if operation not in done:
                done.add(operation)
                yield operation
        else:
            pending.extend(sorted(before, key=order.__getitem__, reverse=True))


@functools.cache
def _types_of_attributes(kind: str) -> dict[str, str]:
    definition = op_def_registry.get(kind)
    return {} if definition is None else {attribute.name: attribute.type for attribute in definition.attr}


def _plain(value: Any) -> Any:
    match value.WhichOneof("value"):
        case "list":
            return tuple(_plain_item(field.name, item) for field, items in value.list.ListFields() for item in items)
        case field:
            return _plain_item(field, getattr(value, field))


def _plain_item(field: str, item: Any) -> Any:
    match field:
        case "type":
            return tf.as_dtype(item).name
        case "s":
            return item.decode(errors="surrogateescape")
        case "shape":
            return None if item.unknown_rank else tuple(dimension.size for dimension in item.dim)
        case "tensor":
            return tf.make_ndarray(item)
        case "func":
            return item.name
    return item


def _for_execution(kind: str, value: Any) -> Any:
    if kind.startswith("list("):
        return [_for_execution(kind[5:-1], item) for item in value]
    match kind:
        case "type":
            return tf.as_dtype(value).as_datatype_enum
        case "shape":
            return None if value is None else list(value)
        case "string":
            return value.encode(errors="surrogateescape")
    return value
