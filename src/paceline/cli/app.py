"""The `paceline` command: its verbs, and what every verb has in common. Loads no TensorFlow."""

from typing import Annotated

import typer

from paceline.cli.render.verbs import render
from paceline.cli.run import run
from paceline.cli.snapshot import snapshot


def _with_dashes(name: str) -> str:
    """Options may be spelt with underscores, as users of `torchrun` do: ``--nproc_per_node``."""
    return name.replace("_", "-")


app = typer.Typer(
    name="paceline",
    help="Distributed training for Keras 3 on TensorFlow: exact, fast, and through failures.",
    epilog="Try: paceline run --workers 2 train.py",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(
    "run",
    # Everything from the script on is the script's, also what looks like an option of ours.
    context_settings={"allow_interspersed_args": False, "token_normalize_func": _with_dashes},
)(run)
app.add_typer(render, name="render", context_settings={"token_normalize_func": _with_dashes})
app.add_typer(snapshot)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # slow, and for this alone

        typer.echo(f"paceline {version('paceline')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """What comes before the verb."""
    del version  # its callback has done everything


def main() -> None:
    """The entry point of the installed command."""
    app()
