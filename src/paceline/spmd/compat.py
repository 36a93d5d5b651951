"""Every private name of TensorFlow that the partitioner uses, and why; checked at import.

| name | why there is no public way |
|---|---|
| `FuncGraph` | a graph to look at loop bodies in, which nobody runs |
| `FuncGraph._create_op_internal` | an operation from its type and attributes, as it was traced |
| `FuncGraph._get_function`, `._add_function_recursive` | the functions that a graph calls |
| `function_def_to_graph` | the graph of a function that was read from a definition |
| `handle_data_util` | what a handle of a variable or list refers to, which a copied operation must keep |
| `resource_variable_ops.get_eager_safe_handle_data` | the type of a variable of which only the handle is known |
| `list_ops` | lists of tensors, to sum or gather one |
"""

from typing import Any

import tensorflow as tf

try:
    from tensorflow.python.framework.func_graph import FuncGraph
    from tensorflow.python.framework.function_def_to_graph import function_def_to_graph
    from tensorflow.python.ops import handle_data_util, list_ops, resource_variable_ops
except ImportError as fault:
    raise ImportError(
        f"Paceline does not support TensorFlow {tf.__version__}: a name that it needs is missing ({fault}). "
        "Install a TensorFlow that Paceline supports (2.17 to 2.21), or a newer Paceline. [version]"
    ) from fault

_ = resource_variable_ops.get_eager_safe_handle_data

for _name in ("_create_op_internal", "_get_function", "_add_function_recursive"):
    if not hasattr(FuncGraph, _name):
        raise ImportError(f"Paceline does not know TensorFlow {tf.__version__}: FuncGraph has no {_name}")

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
"""The operations that call a function."""

_NOT_COPIED = ("_class", "_output_shapes", "_xla_inferred_shapes")
_graphs: dict[tuple[int, str], Any] = {}


def current_graph() -> Any:
    """The graph that operations are being put into."""
    return tf.compat.v1.get_default_graph()


def copied(op: Any, inputs: list[Any]) -> Any:
    """A copy of `op` in the current graph, on other inputs."""
    graph = current_graph()
    attrs = {name: value for name, value in op.node_def.attr.items() if name not in _NOT_COPIED}
    for value in attrs.values():
        for called in [value.func, *value.list.func]:
            if called.name:
                graph._add_function_recursive(op.graph._get_function(called.name))
    new = graph._create_op_internal(
        op.type,
        inputs,
        dtypes=[output.dtype for output in op.outputs],
        name=op.name.split("/")[-1].lstrip("_-") or None,  # which only names within a scope may begin with
        attrs=attrs,
        op_def=op.op_def,
    )
    for old, output in zip(op.outputs, new.outputs, strict=True):
        if output.dtype in (tf.resource, tf.variant):
            handle_data_util.copy_handle_data(old, output)
    return new


def body(op: Any, name: str) -> Any:
    """The graph of the function `name` that `op` calls."""
    function = op.graph._get_function(name)
    graph = getattr(function, "graph", None)
    if graph is not None:
        return graph
    key = (id(op.graph), name)
    if key not in _graphs:
        _graphs[key] = function_def_to_graph(function.cached_definition)
    return _graphs[key]


def implemented_by(op: Any) -> str:
    """What the function that `op` calls says that it implements (`experimental_implements` of `tf.function`); or ""."""
    if op.type not in CALLS:
        return ""
    definition = op.graph._get_function(op.get_attr("f").name).cached_definition
    return str(definition.attr["_implements"].s.decode()) if "_implements" in definition.attr else ""


def stacked(items: Any, element: Any, shape: Any) -> Any:
    """All elements of a list along a new first dimension."""
    return list_ops.tensor_list_stack(items, element, element_shape=shape)


def listed(tensor: Any) -> Any:
    """A list of the entries along the first dimension."""
    return list_ops.tensor_list_from_tensor(tensor, tensor.shape[1:])


def type_of_variable(handle: Any) -> Any:
    """The type of the variable that a tensor is the handle of; None: it is none."""
    if handle.dtype != tf.resource:
        return None
    data = resource_variable_ops.get_eager_safe_handle_data(handle)
    is_variable = data is not None and data.is_set and len(data.shape_and_type) == 1
    return tf.as_dtype(data.shape_and_type[0].dtype) if is_variable else None
