"""A `tf.data.Dataset` and those that it is made of."""

from collections.abc import Iterator
from typing import Any


def with_sources(dataset: Any) -> Iterator[Any]:
    """`dataset`, its inputs, theirs, and so on; each once. Those that a function makes (`interleave`) are not seen."""
    seen: set[int] = set()
    stack = [dataset]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        stack += one._inputs() if hasattr(one, "_inputs") else []


def operations_of_functions(dataset: Any) -> Iterator[set[str]]:
    """For each function that `dataset` calls, the types of the operations in it, and in the functions that it calls."""
    for wrapper in dataset._functions() if hasattr(dataset, "_functions") else ():
        definition = wrapper.function.graph.as_graph_def()
        inner = [function.node_def for function in definition.library.function]
        yield {node.op for nodes in (definition.node, *inner) for node in nodes}
