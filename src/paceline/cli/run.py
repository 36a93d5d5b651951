"""``paceline run``: a script on several workers, of this host or of several.

Settles the options from command line, variables and file, and hands the job to the launcher, which is imported only
then: help must be quick.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.parameters import refuse, require_linux, takes_options
from paceline.cli.program import syntax_error_in
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import rows
from paceline.errors import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNAVAILABLE, ConfigurationError
from paceline.leaving import leave

Script = Annotated[
    str | None,
    typer.Argument(metavar="SCRIPT", help="The Python script to run; with -m the module.", show_default=False),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARGS", help="The arguments of the script, passed on unchanged.", show_default=False),
]


def run(script: Script = None, arguments: Arguments = None, **given: object) -> None:
    """Run a script on several workers, on this host or on several hosts.

    Every line of output begins with its worker's rank. A single worker reads standard input; with several workers,
    none does. The exit code is 0, or that of the first failure. Each option can also be set by a variable,
    PACELINE_MAX_RESTARTS=3, or by a line in the file of --config, max-restarts = 3. Flags are turned off like this:
    --no-verbose.

    \b
    Examples:
      paceline run --workers 2 train.py --epochs 3
      paceline run --workers auto -m mypackage.train
      paceline run -n 4 --log-dir logs train.py
      paceline run -n 1 --data-workers 2 train.py
      paceline run --hosts a:2,b:2 train.py
      paceline run --nnodes 2 --node-rank 0 --rendezvous a:29400 --workers 2 train.py
      srun paceline run --workers 2 train.py
      paceline run -n 4 --max-restarts 3 --snapshot-dir snapshots train.py
    """
    require_linux()
    from paceline.cli.job_settings import given_options, made_job
    from paceline.launcher.preflight import refuse_impossible
    from paceline.launcher.running import run

    try:
        program, options, variables = given_options(script, arguments or (), given, os.environ)
        if not program.is_module and not Path(program.target).exists():
            refuse(
                f"SCRIPT: received {program.target!r}; expected a file that exists here (with -m, the name of a module)"
            )
        if not program.is_module and (syntax_error := syntax_error_in(Path(program.target))):
            typer.echo(syntax_error, err=True, nl=False)
            leave(EXIT_FAILED)  # as Python does
        job = made_job(program, options, variables, say=lambda line: typer.echo(f"paceline: {line}", err=True))
        refuse_impossible(job)
    except ValueError as fault:  # also a ConfigurationError: an option is wrong, or what it names
        refuse(str(fault))
    try:
        code = run(job)
    except ConfigurationError as fault:
        typer.echo(f"paceline: {fault}", err=True)
        code = EXIT_CONFIGURATION
    except OSError as fault:
        typer.echo(f"paceline: this host cannot run the job: {fault}. [host-failed]", err=True)
        code = EXIT_UNAVAILABLE
    except KeyboardInterrupt:  # before the first worker, or after the last
        code = EXIT_INTERRUPTED
    leave(code)


takes_options(run, *rows(JobOptions))
