"""``paceline data``: what is to be known of a script's data. Loads neither TensorFlow nor NumPy."""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.parameters import refuse, require_linux
from paceline.errors import EXIT_FAILED
from paceline.plan.data_profile import SECONDS

verbs = typer.Typer(
    name="data",
    help="Find out what the input of a script costs.",
    epilog="Try: paceline data profile train.py",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python file that calls fit.", show_default=False)]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="The script's own.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Also draw what each stage costs to this file: .svg, or .html with the table, too. Needs pip install "
        "'paceline[observe]'.",
        show_default=False,
    ),
]

Seconds = Annotated[
    float,
    typer.Option(metavar="N", help=f"How long each measurement takes. Default: {SECONDS:g}.", show_default=False),
]


@verbs.callback()
def _data() -> None:
    """A verb stays a verb, also as the only one."""


@verbs.command("profile", context_settings={"allow_interspersed_args": False})
def profile(
    script: Script,
    arguments: Arguments = None,
    seconds: Seconds = SECONDS,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """Show where the time of an input pipeline goes, and what would make it faster.

    Runs the script up to its first fit, and reads the data that fit is given, a tf.data.Dataset, a PyDataset or a
    generator: what each stage or item costs, how much of that is waiting, what several workers would share, and each
    change that was tried with what it brought in fit. For that the model is trained for some seconds, without
    callbacks, and thrown away.

    \b
    Examples:
      paceline data profile train.py
      paceline data profile --plot data.svg train.py images
      paceline data profile --seconds 5 train.py
    """
    require_linux()
    from dataclasses import asdict

    from paceline.cli.pictures import check_plot
    from paceline.plan.data_profile import DataProfile
    from paceline.wire.codec import Decoder

    if not script.is_file():
        refuse(f"SCRIPT: there is no file {str(script)!r} [option]")
    check_plot(plot)
    if not 0 < seconds < math.inf:
        refuse(f"--seconds: received {seconds}; expected a number above 0, e.g. --seconds 5 [option]")
    with tempfile.TemporaryDirectory(prefix="paceline-data-") as folder:
        result = Path(folder, "profile.json")
        program = [
            sys.executable,
            "-P",
            "-m",
            "paceline.bootstrap.data_profiling",
            str(result),
            str(seconds),
            str(script),
        ]
        variables = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
        exit_code = subprocess.run([*program, *(arguments or ())], env=variables, check=False).returncode
        if exit_code or not result.exists():
            raise typer.Exit(exit_code or EXIT_FAILED)
        found = Decoder[DataProfile](DataProfile)(result.read_bytes())
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        from paceline.cli.data_tables import print_profile  # rich, which help does not need

        print_profile(found)
    if plot is not None:
        from paceline.cli.data_tables import write_profile
        from paceline.cli.pictures import write_picture
        from paceline.report.data_picture import stages

        write_picture(plot, "paceline data profile", stages(found), lambda console: write_profile(console, found))
