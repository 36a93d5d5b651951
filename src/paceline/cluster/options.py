"""Rows of a table of options, and how a value of each is read: from the command line, a variable, or a file. Pure.

A table is a subclass of `OptionTable` whose fields are made by `option`: each field is one row, with name, type,
default, help, other spellings, limits, and who uses the value. All else follows from the rows: flags, variables, keys
of a file, help, the reference page, and what other hosts and workers are told.

    class Options(OptionTable):             --max-restarts 3
        max_restarts: int = option(…)  ──►  PACELINE_MAX_RESTARTS=3
                                            max-restarts = 3          (TOML)
"""

import os
import shlex
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from paceline.cluster.value_checks import Fault, FaultList, Grammar, Range, shown

PREFIX = "PACELINE_"
"""Of every variable that stands for an option."""

OPTIONS = "Options"
"""The heading in the help of options that name no other."""

_ROW = "option"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Use(Enum):
    """Who uses the value of an option, besides the `paceline` process that the user has started."""

    HEAD = "the launcher"
    """Nobody else."""
    HOSTS = "the agent of each host"
    WORKERS = "each worker"
    """Also, each agent. A worker finds the value in the option's variable."""
    RANKS = "each rank"
    """As `WORKERS`, but no process outside of the world, such as an evaluator."""


def option(
    default: Any,
    help_: str,
    *,
    metavar: str = "",
    group: str = OPTIONS,
    spellings: tuple[str, ...] = (),
    check: Grammar | Range | None = None,
    use: Use = Use.HEAD,
    rendered: bool = True,
    excludes: tuple[str, ...] = (),
    needs: str = "",
    separator: str = "",
) -> Any:
    """A field of a table, which is one option.

    Args:
        default: The value without any; ``...``: the user must give one.
        help_: What the option does, for the help and the reference page.
        metavar: What stands for the value there; flags have none.
        group: The heading in the help.
        spellings: Further flags with the same meaning.
        check: What the values must be, beyond their type; of a list, each of them.
        use: Who uses the value.
        rendered: Whether the option is one of `paceline render`, too, and stands in the command of each host.
        excludes: Options that say the same thing in another way: whichever the user has given more closely counts.
        needs: The option without which this one means nothing.
        separator: Between the values of a list, in a variable; empty: white space, with the shell's quotes.
    """
    row: dict[str, object] = {"help": help_, "metavar": metavar, "group": group, "spellings": spellings, "use": use}
    row |= {"check": check, "rendered": rendered, "excludes": excludes, "needs": needs, "separator": separator}
    if default is ...:
        return field(metadata={_ROW: row})
    return field(default=default, metadata={_ROW: row})


@dataclass(frozen=True, slots=True, eq=False, repr=False)  # every method that is made costs time at each start
class Option:
    """One row of a table; see `option`."""

    attribute: str
    """The field's name: with its unit."""
    kind: Any
    """bool, int, float, str, Path, or tuple for a list of texts."""
    choices: tuple[str, ...]
    """The only values, if there are any."""
    default: Any
    """None may mean that the user must give a value; see `is_required`."""
    is_required: bool
    prefix: str
    help: str
    metavar: str
    group: str
    spellings: tuple[str, ...]
    check: Grammar | Range | None
    use: Use
    rendered: bool
    excludes: tuple[str, ...]
    needs: str
    separator: str

    @property
    def name(self) -> str:
        """The key in a file, such as ``max-restarts``."""
        return self.attribute.removesuffix("_seconds").replace("_", "-")

    @property
    def flag(self) -> str:
        """The first spelling on the command line."""
        return f"--{self.name}"

    @property
    def negation(self) -> str:
        """The flag that turns a flag off."""
        return f"--no-{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"{PREFIX}{self.prefix}{self.name}".upper().replace("-", "_")

    @property
    def placeholder(self) -> str:
        """What stands for the value in the help; empty: the option is a flag."""
        return self.metavar or "|".join(self.choices)

    def from_text(self, field: str, text: str) -> Any:
        """The value that `text` of a command line or a variable means, or a `Fault`."""
        if self.kind is bool:
            if text.lower() in (*_TRUE, *_FALSE):
                return text.lower() in _TRUE
            return Fault(field, shown(text), "1 (yes) or 0 (no)", f"write {self.variable}=1")
        if self.kind is tuple:
            return self._checked(field, self._split(text))
        try:
            return self._checked(field, self._of_text(text))
        except ValueError:
            return Fault(field, shown(text), self._expected_type, f"write it like {self._example}")

    def from_toml(self, field: str, value: object) -> Any:
        """The value that a file's `value` means, or a `Fault`."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind is tuple and isinstance(value, list) and all(isinstance(one, str) for one in value):
            return self._checked(field, tuple(value))
        if self.kind is bool and isinstance(value, bool):
            return value
        if (self.kind is float and is_number) or (self.kind is int and isinstance(value, int) and is_number):
            return self._checked(field, self.kind(value))  # type: ignore[call-overload, arg-type]
        if self.kind in (str, Path) and (isinstance(value, str) or (isinstance(value, int) and is_number)):
            return self._checked(field, self._of_text(str(value)))
        return Fault(field, shown(value), self._expected_type, f"write it like {self._example}")

    def to_text(self, value: Any) -> str:
        """The text from which `from_text` reads `value` again."""
        if self.kind is bool:
            return "1" if value else "0"
        if self.kind is tuple:
            return self.separator.join(value) if self.separator else shlex.join(value)
        return f"{value:.15g}" if self.kind is float else str(value)  # no point where none is needed: people read it

    def to_words(self, value: Any) -> list[str]:
        """The words of a command line that say `value`."""
        if self.kind is bool:
            return [self.flag if value else self.negation]
        return [word for text in (value if self.kind is tuple else [self.to_text(value)]) for word in (self.flag, text)]

    def faults(self, field: str, value: Any) -> list[Fault]:
        """What is wrong with a value of the right type."""
        if self.choices and value is not None and value not in self.choices:
            return [Fault(field, shown(value), " or ".join(self.choices), f"write {self.flag} {self.choices[0]}")]
        if self.check is None:
            return []
        found = [self.check.fault(field, one) for one in (value if self.kind is tuple else [value])]
        return [fault for fault in found if fault is not None]

    def _checked(self, field: str, value: Any) -> Any:
        return next(iter(self.faults(field, value)), value)

    def _of_text(self, text: str) -> Any:
        if self.choices:
            return text.strip().lower()
        # No shell has replaced the ~ in a file; of a user who is unknown, `Path.expanduser` would raise.
        return Path(os.path.expanduser(text)) if self.kind is Path else self.kind(text)  # noqa: PTH111

    def _split(self, text: str) -> tuple[str, ...]:
        if self.separator:
            return tuple(part.strip() for part in text.split(self.separator) if part.strip())
        try:
            return tuple(shlex.split(text))
        except ValueError:  # a quote that is not closed
            return tuple(text.split())

    @property
    def _expected_type(self) -> str:
        names = {bool: "true or false", int: "a whole number", float: "a number", tuple: "a list of texts"}
        return str(getattr(self.check, "expected", "")) or names.get(self.kind, "text")

    @property
    def _example(self) -> str:
        examples = {bool: "true", int: "2", float: "30", tuple: '["a", "b"]'}
        return str(getattr(self.check, "example", "")) or examples.get(self.kind, f'"{self.placeholder}"')


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionTable:
    """The values of a table's options, and which of them have been given.

    Args:
        given: The fields that the user has given, also with the value of the default; those with another value are
            counted among them.

    Raises:
        ValueError: a value is out of range; the message has all of them.
    """

    PREFIX: ClassVar[str] = ""
    """Of the table's variables, behind `PREFIX`."""

    given: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        values = [(one, getattr(self, one.attribute)) for one in rows(type(self))]
        if faults := [fault for one, value in values for fault in one.faults(one.flag, value)]:
            raise ValueError("\n".join(map(str, faults)) + " [option]")
        others = (one.attribute for one, value in values if value != one.default)
        object.__setattr__(self, "given", self.given.union(others))

    def given_options(self) -> list[tuple[Option, Any]]:
        """Each option that has been given, with its value."""
        values = ((one, getattr(self, one.attribute)) for one in rows(type(self)) if one.attribute in self.given)
        return [(one, value) for one, value in values if value is not None]

    def to_variables(self, *uses: Use) -> dict[str, str]:
        """The variables from which `read_variables` reads these options again: those of the given ones.

        Args:
            uses: Whose options; none: everybody's.
        """
        return {one.variable: one.to_text(value) for one, value in self.given_options() if not uses or one.use in uses}


Table = TypeVar("Table", bound=OptionTable)

_known: dict[type, tuple[Option, ...]] = {}


def rows(table: type[OptionTable]) -> tuple[Option, ...]:
    """The options of `table`, in its order."""
    if table not in _known:
        hints = get_type_hints(table)
        _known[table] = tuple(_row(table, one, hints[one.name]) for one in fields(table) if _ROW in one.metadata)
    return _known[table]


def _row(table: type[OptionTable], one: Any, hint: Any) -> Option:
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (choice for choice in get_args(hint) if choice is not type(None))
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    return Option(
        attribute=one.name,
        kind=str if choices else get_origin(hint) or hint,
        choices=choices,
        default=None if one.default is MISSING else one.default,
        is_required=one.default is MISSING,
        prefix=table.PREFIX,
        **one.metadata[_ROW],
    )


def row(table: type[OptionTable], attribute: str) -> Option:
    """The option of that field."""
    return next(one for one in rows(table) if one.attribute == attribute)


def read_variables(table: type[Table], variables: Mapping[str, str], *attributes: str) -> Table:
    """A `table` with the values that `variables` have for its options, or for those of `attributes` alone.

    Raises:
        ConfigurationError: a value is wrong.
    """
    faults = FaultList("the environment", "[option]")
    values = {}
    for one in rows(table):
        text = variables.get(one.variable)
        if text and (not attributes or one.attribute in attributes):
            values[one.attribute] = value = one.from_text(one.variable, text)
            if isinstance(value, Fault):
                faults.append(value)
    if len(faults):
        raise faults.error()
    return table(**values, given=frozenset(values))
