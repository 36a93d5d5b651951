"""What verbs have in common: parameters from the rows of tables of options, help in groups, and two ways to end."""

import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand

from paceline.cli.foreign_flags import instead_of
from paceline.cluster.options import OPTIONS, Option
from paceline.errors import EXIT_UNAVAILABLE, EXIT_USAGE

_ARGUMENTS = "Arguments"


def takes_options(verb: Callable[..., None], *options: Option) -> Callable[..., None]:
    """`verb`, so that typer hands it `options`, by their attributes, besides its own parameters.

    None stands for an option that the command line does not have. Each value is the text, for flags a truth value, for
    options that may be repeated a list: whoever merges the sources checks them all alike.
    """
    signature = inspect.signature(verb)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    verb.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*own, *map(_parameter, options)]
    )
    return verb


def _parameter(option: Option) -> inspect.Parameter:
    choices = option.choices
    spelling = f"{option.flag}/{option.negation}" if option.kind is bool else option.flag
    information = typer.Option(
        spelling,
        *option.spellings,
        metavar=option.placeholder or None,
        help=help_of(option),
        show_default=False,
        rich_help_panel=option.group,
        autocompletion=(lambda: list(choices)) if choices else None,
    )
    kind = {bool: bool, tuple: list[str]}.get(option.kind, str)
    return inspect.Parameter(
        option.attribute,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, information],
    )


def help_of(option: Option) -> str:
    """What the option does, and its default where the text does not have it already."""
    if option.is_required:
        return f"{option.help} Must be given."
    if option.default is None or option.default is False or option.default == () or "Default:" in option.help:
        return option.help
    default = option.flag if option.default is True else option.to_text(option.default)
    return f"{option.help} Default: {default}."


class GroupedCommand(TyperCommand):
    """A verb whose options are listed in groups under headings; typer by itself needs rich for that.

    (The types of what typer hands in have no public name.)
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments, options, and then the options of each further group."""
        groups: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], OPTIONS: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                spellings, text = record
                if "Default: --" not in text:  # of a flag that is off, only what turns it on
                    spellings = spellings.partition(" / ")[0]
                record = spellings, text
                usual = _ARGUMENTS if parameter.param_type_name == "argument" else OPTIONS
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(record)
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class RunCommand(GroupedCommand):
    """`run`, which knows flags of other launchers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments of the script.

        Raises:
            Exit: a flag is another launcher's; the line says what to write.
        """
        try:
            return super().parse_args(ctx, args)
        except Exception as fault:  # typer has no public name for that of an unknown option
            line = instead_of(getattr(fault, "option_name", ""))
            if line is None:
                raise
            refuse(line)


def refuse(message: str) -> NoReturn:
    """Ends a command line that is not understood."""
    typer.echo(f"paceline: {message}", err=True)
    raise typer.Exit(EXIT_USAGE)


def require_linux() -> None:
    """Ends the command elsewhere, in one sentence: what follows would fail in the middle."""
    if sys.platform != "linux":
        typer.echo(
            f"paceline: Paceline runs on Linux, and this is {sys.platform}. Use a Linux machine, a container, or WSL 2 "
            "on Windows; `paceline render` writes files for Linux clusters from here, too. [not-linux]",
            err=True,
        )
        raise typer.Exit(EXIT_UNAVAILABLE)
