"""The seam: the attributes of Keras and TensorFlow that Paceline replaces, as rows of tables.

    Seam(owner, name, wrapper, why)      getattr(owner, name) becomes wrapper(the original)

Rows are installed in their order: of two rows for one attribute, the later one's wrapper is around the earlier one's.
`seams/table.py` has all rows, and docs/seams.md prints them. A name that a new Keras or TensorFlow no longer has is
told when they are imported, all such names in one error.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import tensorflow as tf

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Seam:
    """One replacement.

    Args:
        owner: A class or module of Keras or TensorFlow.
        name: Of its attribute, or of several that are replaced alike.
        wrapper: From the original (a function, property or class) to what takes its place.
        why: What would go wrong without it, in a few words.
        in_graphs: Whether users' `tf.function`s reach it: AutoGraph then leaves it alone, as it does Keras's own code.
        copies: Under which modules the original is replaced wherever they have imported it by name: those whose names
            end so, of the owner's package. None: nowhere but at the owner.
        may_lack: Whether the owner may lack the attribute; the wrapper is called with None then.
    """

    owner: Any
    name: str | tuple[str, ...]
    wrapper: Callable[[Any], Any]
    why: str
    in_graphs: bool = False
    copies: str | None = None
    may_lack: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of the attributes."""
        return (self.name,) if isinstance(self.name, str) else self.name

    @property
    def where(self) -> str:
        """The owner's name, as its users know it."""
        return str(self.owner.__name__).removeprefix("keras.src.").removeprefix("tensorflow.python.")


def missing_names(rows: Iterable[Seam]) -> list[str]:
    """The attributes that rows replace and that their owners do not have."""
    return [
        f"{row.where}.{name}" for row in rows for name in row.names if not row.may_lack and not hasattr(row.owner, name)
    ]


def install(rows: Sequence[Seam]) -> None:
    """Makes the replacements, row by row. Each row is installed once; its names must exist (`missing_names`)."""
    replaced: dict[tuple[str, str], dict[int, tuple[Any, Any]]] = {}
    for row in rows:
        for name in row.names:
            original = getattr(row.owner, name, None)
            replacement = _replacement(row, original)
            setattr(row.owner, name, replacement)
            if row.copies is not None:
                package = row.owner.__name__.split(".")[0]
                known = replaced.setdefault((package, row.copies), {})
                for before in (original, *_before(original)):
                    known[id(before)] = before, replacement
    for (package, ending), known in replaced.items():
        _spread(known, package, ending)


def _replacement(row: Seam, original: Any) -> Any:
    replacement = row.wrapper(original)
    if original is None or isinstance(original, property) or inspect.isclass(original):
        return replacement
    if row.in_graphs:
        replacement = tf.autograph.experimental.do_not_convert(replacement)
    return functools.wraps(original)(replacement)


def _before(function: Any) -> Iterable[Any]:
    """What `function` was before other rows, and decorators of its own, were put around it."""
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        yield inner
        function = inner


def _spread(known: dict[int, tuple[Any, Any]], package: str, ending: str) -> None:
    """Replaces originals wherever modules of `package` whose names end so have imported them by name.

    Args:
        known: By identity, an original and what takes its place.
        package: Of the modules.
        ending: Of their names.
    """
    for module in [
        module for name, module in sys.modules.items() if name.split(".")[0] == package and name.endswith(ending)
    ]:
        if not isinstance(module, ModuleType):
            continue
        for name, value in list(vars(module).items()):
            original, replacement = known.get(id(value), (_MISSING, None))
            if value is original:
                setattr(module, name, replacement)
