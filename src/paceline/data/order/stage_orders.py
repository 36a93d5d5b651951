"""Stages keep one order on all ranks, and in every run: whatever the script lets them, and whatever cores are theirs.

`deterministic=False` of a map, an interleave or a batch, and `sloppy=True`, are an attribute of TensorFlow's operation,
which overrides the options of the dataset, also in a dataset that a function makes. Where ranks share batches, all must
read the same ones, so the attribute is changed where the operation is made.

`Dataset.interleave` without a `cycle_length` takes as many files at a time as this process may use cores. A worker is
bound to its share of them, so that its rows would come in another order than in one process; and with
`num_parallel_calls` above its share there was an error. So it takes as many as in a process with all cores of the host.
"""

import inspect
import logging
import os
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from paceline.comm.world import current_world
from paceline.observe.frames import script_line

_LOGGER = logging.getLogger("paceline")
_ANY_ORDER, _IN_ORDER = "false", "true"
_AROUND_NAME = re.compile("^(legacy_|experimental_)?(parallel_)?|_dataset(_v[0-9]+)?$")

_said: set[str] = set()
"""The chief's lines: a function that makes a dataset may be called for each epoch."""


def operations_with_order(module: ModuleType) -> Iterator[str]:
    """The names of a module's functions that make a stage whose order may be given up."""
    for name, function in list(vars(module).items()):
        code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        if code is not None and "deterministic" in code.co_varnames[: code.co_argcount]:
            yield name


def in_order(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `operations_with_order` whose stage keeps its order if there are several ranks."""

    def made(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("deterministic") == _ANY_ORDER and current_world().size > 1:
            kwargs["deterministic"] = _IN_ORDER
            if current_world().is_chief:
                say_made_in_order(f"`{_AROUND_NAME.sub('', make.__name__)}` with deterministic=False", script_line())
        return make(*args, **kwargs)

    return made


def say_made_in_order(what: str, line: str = "") -> None:
    """Says once that `what`, of this line of the script, has a fixed order; for the chief."""
    told = f"{what}{f' ({line})' if line else ''}: the order of its rows was made deterministic"
    if told not in _said:
        _said.add(told)
        _LOGGER.info("%s, because all ranks must read the same rows in the same order.", told)


_AUTOTUNE = -1
_THREADS_OF_AN_ELEMENT = 3
"""Under `num_parallel_calls=AUTOTUNE` TensorFlow counts a thread that reads an element of the cycle, and two that
read ahead of it."""


class _Host:
    """What this process could use before it was bound."""

    num_cores: int | None = None
    """None: this process is not bound, and TensorFlow's own rule holds."""


def note_cores_before_binding() -> None:
    """This process is about to be bound to some of its cores."""
    _Host.num_cores = len(os.sched_getaffinity(0))


def as_unbound(interleave: Callable[..., Any]) -> Callable[..., Any]:
    """TensorFlow's method."""

    def interleaved(
        self: Any,
        map_func: Any,
        cycle_length: Any = None,
        block_length: Any = None,
        num_parallel_calls: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        is_left_out = cycle_length is None or (isinstance(cycle_length, int) and cycle_length == _AUTOTUNE)
        if _Host.num_cores is not None and is_left_out and isinstance(num_parallel_calls, int | None):
            cycle_length = cycle_length_of(_Host.num_cores, num_parallel_calls)
        return interleave(self, map_func, cycle_length, block_length, num_parallel_calls, *args, **kwargs)

    return interleaved


def cycle_length_of(num_cores: int, num_parallel_calls: int | None) -> int:
    """What TensorFlow takes in a process with so many cores; pure.

    >>> cycle_length_of(8, None), cycle_length_of(8, 2), cycle_length_of(8, 16), cycle_length_of(8, -1)
    (8, 2, 8, 3)
    """
    if num_parallel_calls is None:
        return num_cores
    if num_parallel_calls == _AUTOTUNE:
        return -(-num_cores // _THREADS_OF_AN_ELEMENT)
    return min(num_parallel_calls, num_cores)
