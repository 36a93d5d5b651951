"""All ranks have traced the same step: else none of them computes what one worker would.

A script may ask while it is traced for the rank, the clock, or random numbers without a seed. Then ranks have other
graphs, and the messages of one would meet others of another. So the graphs are compared once, before the first step:

    kinds of operations, attributes and constants, in order ─► one number each ─► a digest of all, over ranks

Names are left out: a rank that has made another model before counts its layers from another number.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from paceline.comm.group import Group
from paceline.errors import DesynchronizedError
from paceline.observe.frames import users_line_of_stack

_NAMES = frozenset({"shared_name", "container", "token", "config_proto", "executor_type"})
"""Attributes that only name something of this process, as those do that begin with an underscore."""
_DIGEST_BYTES = 8


def compare_steps(traced: Any, name: str, group: Group) -> None:
    """Compares the traced graph of a step over ranks. Collective.

    Args:
        traced: The concrete function.
        name: The step's, for the message.
        group: The ranks.

    Raises:
        DesynchronizedError: ranks have traced different graphs; names the first operation that differs.
    """
    numbers = np.frombuffer(b"".join(digests_of(traced.graph.as_graph_def())), np.int64)
    digest = np.frombuffer(hashlib.blake2b(numbers.tobytes(), digest_size=16).digest(), np.uint8)
    if all(np.array_equal(theirs, digest) for theirs in group.all_gather(digest)):
        return
    everybodys = group.all_gather(numbers)
    first = first_difference(everybodys)
    mine = np.frombuffer(_text(traced.graph, first).encode(), np.uint8)
    texts = [theirs.tobytes().decode() for theirs in group.all_gather(mine)]
    chiefs = everybodys[0][first : first + 1].tolist()
    other = next(rank for rank, theirs in enumerate(everybodys) if theirs[first : first + 1].tolist() != chiefs)
    raise DesynchronizedError(
        f"the ranks have traced different steps of {name}, so the job was stopped before the first one: {texts[0]} on "
        f"rank 0, {texts[other]} on rank {other}. A step must not depend on the rank, the clock, or random numbers "
        "without a seed while it is traced: use tf.random or keras.random in it, and print and write under "
        "paceline.is_chief() outside of it. [ranks-differ]"
    )


def digests_of(graph_def: Any) -> Iterator[bytes]:
    """A digest of each operation of a graph, and of the functions that it calls, in order; pure."""
    functions = {function.signature.name: function.node_def for function in graph_def.library.function}
    seen: set[str] = set()
    left = [graph_def.node]
    while left:
        for node in left.pop():
            digest = hashlib.blake2b(node.op.encode() if node.op not in functions else b"", digest_size=_DIGEST_BYTES)
            digest.update(str(len(node.input)).encode())
            for name in sorted(node.attr):
                value = node.attr[name]
                called = [one.name for one in (value.func, *value.list.func) if one.name]
                if called:
                    left += [functions[one] for one in called if one in functions and one not in seen]
                    seen.update(called)
                elif name not in _NAMES and not name.startswith("_"):
                    digest.update(name.encode() + value.SerializeToString(deterministic=True))
            yield digest.digest()


def first_difference(of_ranks: Sequence[Any]) -> int:
    """The first place at which the ranks' arrays differ, perhaps one behind the end of some; pure."""
    length = min(len(numbers) for numbers in of_ranks)
    differs = np.any([numbers[:length] != of_ranks[0][:length] for numbers in of_ranks], axis=0)
    return int(np.argmax(differs)) if differs.any() else length


def _text(graph: Any, place: int) -> str:
    """The operation at a place of the digests, in words."""
    operations = graph.get_operations()
    if place >= len(operations):
        return "another function or constant in it"
    one = operations[place]
    line = users_line_of_stack(one.traceback)
    return f"{one.type}{f' in {line}' if line else ''}"
