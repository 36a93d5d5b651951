"""The `paceline` command: its verbs, and what every verb has in common. Loads no TensorFlow."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from paceline.cli.parameters import GroupedCommand, RunCommand
from paceline.cli.run import run


def _with_dashes(name: str) -> str:
    """Options may be spelt with underscores, as users of `torchrun` do: ``--nproc_per_node``."""
    return name.replace("_", "-")


class _Targets(TyperGroup):
    """The verbs of `render`, whose tables of options are loaded when one of them, or the list of all, is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all targets."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of that target; None: there is none."""
        self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if not self.commands:
            from paceline.cli.render import verbs

            group: Any = typer.main.get_command(verbs)
            self.commands.update(group.commands)


_RENDER = _Targets(
    name="render",
    help="Write the files with which Kubernetes, Slurm or Google Cloud starts a job on many hosts.",
    epilog="Try: paceline render kubernetes --image team/train:1 train.py",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class _Verbs(TyperGroup):
    """`run`, and the other verbs, whose files and flags are loaded when one of them, or the list of all, is asked for.

    A job waits for nothing that it does not need. (The types of what typer hands in have no public name.)
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all verbs."""
        self._load_others()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb of that name; None: there is none."""
        if cmd_name not in self.commands:
            self._load_others()
        return super().get_command(ctx, cmd_name)

    def _load_others(self) -> None:
        from paceline.cli.data_verb import verbs as data_verbs
        from paceline.cli.doctor_verb import doctor
        from paceline.cli.plan_verb import plan
        from paceline.cli.predict_verb import predict
        from paceline.cli.report_verb import report
        from paceline.cli.snapshot import snapshot
        from paceline.cli.status_verb import status, top

        if "snapshot" not in self.commands:
            verbs = typer.Typer(add_completion=False, rich_markup_mode=None)
            verbs.command("doctor", cls=GroupedCommand)(doctor)
            verbs.command("plan")(plan)
            verbs.command("predict", cls=GroupedCommand)(predict)
            verbs.command("report", epilog="Try: paceline run --observe seen train.py; paceline report seen")(report)
            verbs.command("status", epilog="Examples: paceline status; paceline status --json | jq '.[0].step'")(status)
            verbs.command("top", epilog="Examples: paceline top; paceline top | tee top.log")(top)
            self.add_command(typer.main.get_command(data_verbs), "data")
            others: Any = typer.main.get_command(verbs)
            self.commands.update(others.commands)
            self.add_command(_RENDER, "render")
            self.add_command(typer.main.get_command(snapshot), "snapshot")


def _print_version() -> None:
    from importlib.metadata import version  # slow, and for this alone

    typer.echo(f"paceline {version('paceline')}")


def _version() -> None:
    """Show the versions of Paceline, Python, TensorFlow, Keras and MPI, for a bug report."""
    import platform  # slow, and for this alone

    from paceline.wire.versions import installed_versions

    _print_version()
    for name, number in installed_versions().items():
        if name != "Paceline":
            typer.echo(f"{name} {number}")
    typer.echo(f"{platform.system()} {platform.release()}, {platform.machine()}, {' '.join(platform.libc_ver())}")


app = typer.Typer(
    name="paceline",
    help="Distributed training for Keras 3 on TensorFlow: exact, fast, and through failures.",
    epilog="Try: paceline run --workers 2 train.py",
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _with_dashes},
)
# Everything from the script on is the script's, also what looks like an option of ours.
app.command("run", cls=RunCommand, context_settings={"allow_interspersed_args": False})(run)
app.command("version", epilog="Try: paceline version")(_version)


def _version_alone(wanted: bool) -> None:
    if wanted:
        _print_version()
        raise typer.Exit


@app.callback()
def _options(
    only_version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_version_alone, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """What comes before the verb."""
    del only_version  # its callback has done everything
