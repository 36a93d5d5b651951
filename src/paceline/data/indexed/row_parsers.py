"""`parse` of one record, as a function of the records of a batch: one call of each operation for all, or one for each.

One for all takes a third of the time. It gives the same bits where each operation rounds each number by itself, or
rounds none (`spmd/rules/table.py`), and where all shapes are known: a row needs no other shape than its neighbours
then.
"""

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.data.compat import is_vectorised
from paceline.data.faults import keeps_fault
from paceline.data.fingerprint import DRAWS
from paceline.spmd.rules.table import EXACT

_Function = Callable[..., list[Any]]

_OF_NO_ROW = frozenset(["Const", "NoOp", "Placeholder"])
_FIXES_SHAPE = frozenset(["EnsureShape", "Reshape"])


def batch_parser(parse: Callable[..., Any]) -> tuple[_Function, Any]:
    """A function of the records and seeds of a batch, which returns the components of what `parse` returns.

    Args:
        parse: Takes a record (string scalar), or a record and a seed (int64, shape [2]). Traced once.

    Returns:
        The function, and the spec of a row.

    Raises:
        ValueError: it draws random numbers, or returns something else than dense tensors of known rank.
    """
    has_seed = takes_seed(parse)

    def function(record: Any, seed: Any) -> Any:
        return parse(record, seed) if has_seed else parse(record)

    traced = tf.function(function).get_concrete_function(tf.TensorSpec([], tf.string), tf.TensorSpec([2], tf.int64))
    spec = tf.nest.map_structure(tf.type_spec_from_value, traced.structured_outputs)
    if not all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank is not None for leaf in tf.nest.flatten(spec)):
        raise ValueError(f"parse returns {spec}: it must return dense tensors of known rank [row-source]")
    definition = traced.graph.as_graph_def()
    nodes = [*definition.node, *(node for inner in definition.library.function for node in inner.node_def)]
    if draws := sorted({node.op for node in nodes if DRAWS.match(node.op) and "PyFunc" not in node.op}):
        raise ValueError(
            f"parse draws random numbers ({', '.join(draws)}), which depend on the rows that were parsed before. Let "
            "it take a seed: parse(record, seed), and use tf.random.stateless_*(seed=seed) [row-source]"
        )

    def of_row(record: Any, seed: Any) -> list[Any]:
        return list(tf.nest.flatten(traced(record, seed)))

    of_all = _of_all(of_row) if _is_same_for_all(traced) else None
    return of_all or _one_after_the_other(of_row, tf.nest.flatten(spec)), spec


def takes_seed(parse: Callable[..., Any]) -> bool:
    """Whether a function takes a record and a seed."""
    parameters = inspect.signature(parse).parameters
    return "seed" in parameters or sum(one.default is one.empty for one in parameters.values()) > 1


def _is_same_for_all(traced: Any) -> bool:
    """Whether a traced function of a row gives the same bits, if each operation is called for many rows at once."""
    if any(tensor.dtype in (tf.resource, tf.variant) for tensor in traced.captured_inputs):
        return False
    for operation in traced.graph.get_operations():
        kind = operation.type
        if kind not in _OF_NO_ROW and not (kind in EXACT and is_vectorised(kind)):
            return False
        for tensor in operation.outputs:
            readers = tensor.consumers()
            is_fixed = bool(readers) and all(one.type in _FIXES_SHAPE for one in readers)
            if not tensor.shape.is_fully_defined() and not is_fixed:
                return False
    return True


def _of_all(of_row: _Function) -> _Function | None:
    """`of_row` for many rows at once; None: TensorFlow does not know how."""

    def of_rows(records: Any, seeds: Any) -> list[Any]:
        return list(tf.vectorized_map(lambda row: of_row(*row), (records, seeds), fallback_to_while_loop=False))

    try:
        tf.function(of_rows).get_concrete_function(tf.TensorSpec([None], tf.string), tf.TensorSpec([None, 2], tf.int64))
    except ValueError:
        return None
    return of_rows


def _one_after_the_other(of_row: _Function, specs: list[Any]) -> _Function:
    def of_one(row: Any) -> list[Any]:
        found = []
        for part, spec in zip(of_row(*row), specs, strict=True):
            found += [part] if spec.shape.is_fully_defined() else [tf.shape(part, tf.int64), tf.reshape(part, [-1])]
        return found

    signature: list[Any] = []
    for spec in specs:
        shape = tf.TensorSpec([spec.shape.rank], tf.int64)
        values = tf.RaggedTensorSpec([None], spec.dtype, ragged_rank=0)
        signature += [spec] if spec.shape.is_fully_defined() else [shape, values]

    def of_rows(records: Any, seeds: Any) -> list[Any]:
        found = iter(tf.map_fn(of_one, (records, seeds), fn_output_signature=signature))
        return [
            next(found) if spec.shape.is_fully_defined() else _stacked(next(found), next(found), seeds[:, 1])
            for spec in specs
        ]

    return of_rows


def _stacked(shapes: Any, values: Any, numbers: Any) -> Any:
    """Tensors of these shapes, from their numbers one below the other; of the records with these numbers."""

    @keeps_fault
    def refuse(shapes: Any, numbers: Any) -> Any:
        other = int((shapes != shapes[0]).any(axis=1).argmax())
        raise ValueError(
            f"parse returns a tensor of shape {shapes[0].tolist()} for record {numbers[0]}, and one of shape "
            f"{shapes[other].tolist()} for record {numbers[other]} (from 0, in all files). The rows of a batch need "
            "the same shapes: let parse pad or cut them, as with tf.pad or tf.image.resize_with_crop_or_pad "
            "[row-source]"
        )

    # Stateless for TensorFlow: a stateful function would forbid saving an iterator's position.
    checked = tf.cond(
        tf.reduce_all(shapes == shapes[0]),
        lambda: tf.constant(0, tf.int64),
        lambda: tf.numpy_function(refuse, [shapes, numbers], tf.int64, stateful=False),
    )
    with tf.control_dependencies([checked]):
        shape = tf.concat([tf.shape(shapes, tf.int64)[:1], shapes[0]], 0)
        return tf.reshape(values.flat_values, shape)
