"""Stages that a script lets give their elements in any order are made to keep the order, where ranks share batches.

`deterministic=False` of a map, an interleave or a batch, and `sloppy=True`, are an attribute of TensorFlow's operation,
which overrides the options of the dataset, also in a dataset that a function makes. All ranks must read the same
batches, so the attribute is changed where the operation is made.
"""

import inspect
import logging
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
