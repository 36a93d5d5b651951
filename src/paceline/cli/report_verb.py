"""``paceline report``: what ``paceline run --observe`` has kept of a job, as one page, a timeline and curves."""

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from paceline.errors import EXIT_CONFIGURATION, EXIT_FAILED, ConfigurationError

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of `paceline run --observe FOLDER`.")]


def report(folder: Folder) -> None:
    """Make one page of what `paceline run --observe FOLDER` has kept: FOLDER/report.html, which loads nothing.

    It has the metrics, where the time of each worker went, who waited for whom, hosts, failures, and advice. The
    timeline for ui.perfetto.dev (trace.json.gz) and the curves for TensorBoard are written anew, too. The job may still
    run. Needs pip install 'paceline[observe]'.
    """
    from paceline.report.kept_job import TENSORBOARD, TRACE, read_job  # slow, as are the others: not for help
    from paceline.report.making import make_page, make_timeline

    try:
        job = read_job(folder)
        lacking = make_timeline(folder, job)
        page = make_page(folder, job)
    except ConfigurationError as fault:
        _fail(str(fault), EXIT_CONFIGURATION)
    except ImportError as fault:
        fix = "pip install 'paceline[observe]'"
        _fail(f"no report: {(fault.name or '').partition('.')[0]} is not installed. Fix: {fix} [observe]", EXIT_FAILED)
    except OSError as fault:
        _fail(f"no report of {folder}: {fault}. Fix: make room, or free the folder for writing. [observe]", EXIT_FAILED)
    typer.echo(f"{page}: open it in a browser")
    typer.echo(f"{folder / TRACE}: open it at https://ui.perfetto.dev")
    if (folder / TENSORBOARD).is_dir():
        typer.echo(f"{folder / TENSORBOARD}: tensorboard --logdir {folder}")
    for line in lacking:
        typer.echo(f"paceline: {line} [observe]", err=True)


def _fail(message: str, exit_code: int) -> NoReturn:
    typer.echo(f"paceline: {message}", err=True)
    raise typer.Exit(exit_code)
