"""``paceline run``: a script on several workers of this host.

Reads the command line and hands it to the launcher, which is imported only then: help must be quick.
"""

import os
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from paceline.errors import EXIT_CONFIGURATION, EXIT_USAGE, ConfigurationError

AUTO = "auto"

EXIT_INTERRUPTED = 130
"""What shells show for a program that Ctrl-C ended."""


class Bind(Enum):
    """The values of --bind."""

    CORES = "cores"
    NONE = "none"


def run(
    script: Annotated[
        str,
        typer.Argument(metavar="SCRIPT", help="The Python script, or with -m the module.", show_default=False),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Its own arguments, passed on untouched.", show_default=False),
    ] = None,
    workers: Annotated[
        str,
        typer.Option(
            "--workers",
            "-n",
            "-np",
            "--num-proc",
            "--nproc-per-node",
            "--num-processes",
            metavar="N|auto",
            help="How many workers; auto: one for each GPU, or without GPUs one for each usable core.",
        ),
    ] = "1",
    module: Annotated[
        bool, typer.Option("-m", "--module", help="SCRIPT is the name of a module, as in python -m.")
    ] = False,
    bind: Annotated[
        Bind,
        typer.Option(help="cores: each worker gets its own cores and thread counts; none: the system decides."),
    ] = Bind.CORES,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep each worker's output also in job_0.log, job_1.log, ... there. Default: no files.",
            show_default=False,
        ),
    ] = None,
    start_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long the group may take to connect once every worker has asked for it.",
        ),
    ] = 60.0,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="INT",
            help="Seed of Python, NumPy and TensorFlow on all workers. Default: random.",
            show_default=False,
        ),
    ] = None,
    no_drop_in: Annotated[
        bool,
        typer.Option("--no-drop-in", help="Leave tf.distribute as it is: the script uses Paceline's own names."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Tell seed, cores, GPUs and addresses.")] = False,
) -> None:
    """Run a script on several workers of this host.

    Every line of output begins with its worker's rank; workers have no standard input. The exit code is 0,
    or the first failure's.

    \b
    Examples:
      paceline run --workers 2 train.py --epochs 3
      paceline run --workers auto -m mypackage.train
      paceline run -n 4 --log-dir logs train.py
    """
    if not module and not Path(script).exists():
        _refuse(f"SCRIPT: received {script!r}; expected a file that exists here (with -m, the name of a module)")
    from paceline.cluster.communication import communication
    from paceline.launcher.agent import run_job
    from paceline.launcher.job import JobDescription, worker_command

    try:
        job = JobDescription(
            command=worker_command(script, arguments or [], module=module),
            num_workers=_num_workers(workers),
            environment=dict(os.environ),
            bind=bind.value,
            log_dir=log_dir,
            start_timeout_seconds=start_timeout,
            seed=seed,
            drop_in=not no_drop_in,
            verbose=verbose,
        )
    except ValueError as fault:
        _refuse(str(fault))
    try:
        communication(os.environ, num_gpus=0)  # each worker would find the same fault
        code = run_job(job)
    except ConfigurationError as fault:
        typer.echo(f"paceline: {fault}", err=True)
        code = EXIT_CONFIGURATION
    except KeyboardInterrupt:  # before the first worker, or after the last
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def _num_workers(text: str) -> int:
    from paceline.launcher.host_resources import core_quota, num_workers_for, usable_cores, visible_gpus

    if text == AUTO:
        return num_workers_for(usable_cores(), core_quota(), visible_gpus(os.environ))
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--workers: received {text!r}; expected a number from 1 on, or {AUTO}") from None


def _refuse(message: str) -> NoReturn:
    typer.echo(f"paceline: {message}", err=True)
    raise typer.Exit(EXIT_USAGE)
