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
