"""Where the user may give options, and which source wins. Pure.

command line  >  PACELINE_<NAME>  >  --config FILE  >  the default of the row
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.cluster import environment
from paceline.cluster.options import Option, Table, rows
from paceline.cluster.value_checks import Fault, refuse_any, shown
from paceline.errors import ConfigurationError


class CommandLine:
    """What flags say, by the attribute of their option: a text, several, or for flags without a value a truth value."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given

    def value(self, option: Option) -> Any:
        """The value of `option`, or a `Fault`; None: not given here."""
        given = self._given.get(option.attribute)
        if given is None or given == []:
            return None
        if isinstance(given, bool):
            return given
        if isinstance(given, str):
            return option.from_text(self.name(option), given)
        return option.from_toml(self.name(option), given)

    def name(self, option: Option) -> str:
        """What the user calls `option` here."""
        return option.flag


class Variables:
    """The environment; an empty variable is none."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def value(self, option: Option) -> Any:
        """See `CommandLine.value`."""
        text = self._variables.get(option.variable)
        return option.from_text(option.variable, text) if text else None

    def name(self, option: Option) -> str:
        """See `CommandLine.name`."""
        return option.variable


class File:
    """A file of ``--config``, or one table of it, by the options' names."""

    def __init__(self, path: str, values: Mapping[str, object]) -> None:
        self.path, self.values = path, values

    def value(self, option: Option) -> Any:
        """See `CommandLine.value`."""
        given = self.values.get(option.name)
        return None if given is None else option.from_toml(self.name(option), given)

    def name(self, option: Option) -> str:
        """See `CommandLine.name`."""
        return f"{self.path}: {option.name}"


Source = CommandLine | Variables | File


def gathered(options: Sequence[Option], sources: Sequence[Source]) -> tuple[dict[str, Any], dict[Fault, Source | None]]:
    """By attribute each option's value from the first of `sources` that has one, and what is wrong, and where.

    An option is not taken from a source if one before it has said the same thing in another way: with ``--hosts`` on
    the command line, PACELINE_NNODES says nothing. An option that needs another one is a fault without it, except as a
    variable, which may be there for other jobs.
    """
    found: dict[str, tuple[Any, Source]] = {}
    rivals = _rivals(options)
    for source in sources:
        before = set(found)
        # A flag that is off ("not standalone") rules nothing out.
        said = {attribute for attribute, (value, _) in found.items() if value is not False}
        for option in options:
            if option.attribute not in before and not rivals[option.attribute] & said:
                value = source.value(option)
                if value is not None:
                    found[option.attribute] = value, source
    faults: dict[Fault, Source | None] = {}
    for option in options:
        if option.attribute not in found:
            if option.is_required:
                expected = str(getattr(option.check, "expected", "a value"))
                faults[Fault(option.flag, "nothing", expected, f"write {option.flag} {option.placeholder}")] = None
            continue
        value, source = found[option.attribute]
        if isinstance(value, Fault):
            faults[value] = source
        elif option.needs and option.needs not in found and value is not False:
            del found[option.attribute]
            if not isinstance(source, Variables):
                needed = next(one for one in options if one.attribute == option.needs)
                text = f"{needed.flag} with it", f"write {needed.flag} {needed.placeholder}, too"
                faults[Fault(source.name(option), shown(option.to_text(value)), *text)] = source
    return {attribute: value for attribute, (value, _) in found.items()}, faults


def settled(table: type[Table], sources: Sequence[Source]) -> Table:
    """The `table` that `sources`, the first of which wins, describe; see `gathered`.

    Raises:
        ConfigurationError: values are wrong or missing; the message has all of them, each with its source.
        ValueError: the same, where only the command line is wrong.
    """
    values, faults = gathered(rows(table), sources)
    try:
        refuse_any("the command", "[option]", faults)
    except ConfigurationError as error:
        if all(isinstance(source, CommandLine) for source in faults.values()):
            raise ValueError(str(error)) from error
        raise
    return table(**values, given=frozenset(values))


def _rivals(options: Iterable[Option]) -> dict[str, set[str]]:
    """By option those that say the same thing in another way."""
    rivals: dict[str, set[str]] = {option.attribute: set(option.excludes) for option in options}
    for attribute, others in list(rivals.items()):
        for other in list(others):
            rivals.setdefault(other, set()).add(attribute)
    return rivals


def users_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of `variables` that the user has set, or the script of a job that starts another job.

    What a worker inherits of its own job's settings is that job's: a job that its script starts must not go on from the
    same snapshots, or draw the same random numbers, only because nobody has said otherwise.
    """
    try:
        told = dict(json.loads(variables.get(environment.TOLD, "{}")))
    except (ValueError, TypeError):  # not written by a launcher
        told = {}
    return {name: value for name, value in variables.items() if told.get(name) != value}
