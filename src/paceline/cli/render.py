"""``paceline render``: one verb for each target. Nothing is started, and nobody is asked."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from paceline.cli.config_file import config_file
from paceline.cli.parameters import GroupedCommand, refuse, takes_options
from paceline.cli.program import named_program
from paceline.cli.run import Arguments, Script
from paceline.cluster.job_options import JobOptions
from paceline.cluster.option_sources import CommandLine, Source, Variables, gathered, users_variables
from paceline.cluster.options import OptionTable, rows
from paceline.cluster.value_checks import refuse_any
from paceline.render.gcloud import GcloudTarget, gcloud_commands
from paceline.render.kubernetes import KubernetesTarget, kubernetes_manifest
from paceline.render.slurm import SlurmTarget, sbatch_script
from paceline.render.training_run import TrainingRun, read_variables, rendered_options

Target = TypeVar("Target", bound=OptionTable)

Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write to this file. Default: standard output.", show_default=False
    ),
]


def kubernetes(script: Script = None, arguments: Arguments = None, output: Output = None, **given: object) -> None:
    """Write a manifest: an Indexed Job, a headless Service, a Secret. Needs no operator; Kubernetes 1.31 or newer.

    The file contains the secret of the job, unless --secret-name names an existing Secret. With --output, only
    you can read the file.

    \b
    Examples:
      paceline render kubernetes --nnodes 4 --workers 2 --image team/train:1 train.py --epochs 3
      paceline render kubernetes --nnodes 2 --workers auto --gpus 4 --cpu 32 --memory 128Gi --volume data:/data \\
        --name train --image team/train:1 -o train.yaml -m mypackage.train
      paceline render kubernetes --image team/train:1 train.py | kubectl apply -f -
    """

    def text(run: TrainingRun, target: KubernetesTarget) -> str:
        from secrets import token_hex

        return kubernetes_manifest(run, target, token_hex(32))

    _render("kubernetes", KubernetesTarget, text, script, arguments or [], given, output)


def slurm(script: Script = None, arguments: Arguments = None, output: Output = None, **given: object) -> None:
    """Write an sbatch script that starts one `paceline run` on each node.

    Slurm tells the job before its time limit, or before it is preempted. With --snapshot-dir the job then writes a
    snapshot and exits with code 75, and the script queues the job again.

    \b
    Examples:
      paceline render slurm --nnodes 4 --workers auto --gpus-per-node 4 --cpus-per-task 32 --time 12:00:00 \\
        --snapshot-dir snapshots train.py
      paceline render slurm --nnodes 2 --setup 'module load cuda' --setup 'source .venv/bin/activate' train.py
      paceline render slurm --nnodes 2 -o job.sh train.py --epochs 3 && sbatch job.sh
    """
    _render("slurm", SlurmTarget, sbatch_script, script, arguments or [], given, output)


def gcloud(script: Script = None, arguments: Arguments = None, output: Output = None, **given: object) -> None:
    """Write a bash script that creates machines of Compute Engine, which start the job when they boot.

    The machines keep running after the job, and cost money until you delete them.

    \b
    Examples:
      paceline render gcloud --nnodes 2 --workers 2 --zone us-central1-a --machine-type n2-standard-8 \\
        --code gs://my-bucket/my-code train.py --epochs 3
      paceline render gcloud --nnodes 2 --workers auto --zone us-central1-a --machine-type n1-standard-16 --spot \\
        --accelerator type=nvidia-tesla-t4,count=2 --image-family my-cuda \\
        --image-project my-project --code https://github.com/me/my-code.git train.py
      paceline render gcloud --zone europe-west4-a --machine-type n2-standard-8 train.py | bash
    """
    _render("gcloud", GcloudTarget, gcloud_commands, script, arguments or [], given, output)


def _render(
    name: str,
    table: type[Target],
    text: Callable[[TrainingRun, Target], str],
    script: str | None,
    arguments: list[str],
    given: dict[str, object],
    output: Path | None,
) -> None:
    """Writes what `text` returns to `output` or standard output; exits with 2 and all faults if there are some."""
    try:
        run, target = _described(name, table, script, arguments, given)
        rendered = text(run, target)
        if output is not None:
            _write(output, rendered)
    except ValueError as fault:
        refuse(str(fault))
    except OSError as fault:
        refuse(f"--output: {str(output)!r} cannot be written: {fault.strerror} [option]")
    if output is None:
        typer.echo(rendered, nl=False)


def _described(
    name: str, table: type[Target], script: str | None, arguments: list[str], given: dict[str, object]
) -> tuple[TrainingRun, Target]:
    """The job and its target, from the command line, variables and a file.

    Raises:
        ValueError: names everything that is wrong.
    """
    variables = users_variables(os.environ)
    file = config_file(given.get("config"), variables)
    own: list[Source] = [CommandLine(given), Variables(variables)]
    unused = sorted(set(file.options.values) - {option.name for option in rendered_options()})
    if unused:
        path, names = file.options.path, ", ".join(unused)
        typer.echo(f"paceline: {path}: `paceline render` has no {names}; what it writes is without them", err=True)
    values, faults = gathered(rendered_options(), [*own, file.options])
    if script is None and file.script is not None:
        script, arguments = file.script, list(file.arguments)
    if script is None:
        raise ValueError("SCRIPT: received nothing; expected a script, as the hosts see it, e.g. train.py [no-script]")
    program = named_program(script, arguments, values.get("module") is True)
    named = read_variables(values["env"] if isinstance(values.get("env"), tuple) else (), os.environ)
    run = TrainingRun(script=program.target, arguments=program.arguments, variables=named)
    of_target, more = gathered(rows(table), [*own, file.of_target(name)])
    if faults or more:
        refuse_any("the command line", "[option]", (*faults, *run.faults(), *more))
    options = JobOptions(**{**values, "module": program.is_module}, given=frozenset(values))
    return replace(run, options=options), table(**of_target, given=frozenset(of_target))


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and for the owner alone: a manifest may hold the job's secret."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


verbs = typer.Typer(add_completion=False, rich_markup_mode=None)
for verb, table, heading in (
    (kubernetes, KubernetesTarget, "Kubernetes"),
    (slurm, SlurmTarget, "Slurm"),
    (gcloud, GcloudTarget, "Google Cloud"),
):
    of_target = (replace(option, group=heading) for option in rows(table))
    # Everything from the script on is the script's, as for `paceline run`.
    verbs.command(cls=GroupedCommand, context_settings={"allow_interspersed_args": False})(
        takes_options(verb, *of_target, *rendered_options())
    )
