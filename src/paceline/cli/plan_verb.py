"""``paceline plan``: how a model would be trained as a pipeline. Nothing is trained.

The model is measured in a process of its own, with the cores of one worker; everything else follows from the profile.
Loads neither TensorFlow nor NumPy.
"""

import functools
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.parameters import refuse, require_linux
from paceline.errors import EXIT_CONFIGURATION, EXIT_FAILED

if TYPE_CHECKING:
    from paceline.plan.comparison import Comparison, Pipeline
    from paceline.plan.profile import Profile
    from paceline.plan.schedules import Schedule

_PATIENCE_SECONDS = 2.0
"""After which a user is told what takes so long."""

Model = Annotated[
    str,
    typer.Argument(
        metavar="FILE:NAME",
        help="A Python file, and in it a Keras model, or a function without arguments that returns one.",
        show_default=False,
    ),
]
Stages = Annotated[int, typer.Option(metavar="N", min=1, help="Places in the pipeline.", show_default=False)]
MicroBatches = Annotated[int, typer.Option(metavar="N", min=1, help="Parts of a batch.", show_default=False)]
Batch = Annotated[int, typer.Option(metavar="ROWS", min=1, help="Rows of a global batch.", show_default=False)]
Replicas = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, help="Workers of each stage, which share the rows. Default: 1.", show_default=False
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(metavar="BYTES", help="The most that a worker may hold, e.g. 2GB or 512MiB.", show_default=False),
]
Bandwidth = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES", help="Bytes per second between two workers, e.g. 1GB. Default: no limit.", show_default=False
    ),
]
Schedules = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only this schedule; may be repeated. Default: all.", show_default=False),
]
Recompute = Annotated[bool, typer.Option("--recompute", help="Stages stash their inputs only, and compute again.")]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Also draw the best synchronous schedule, or those of --schedule, to this file: .svg, or .html with the "
        "tables, too. Needs pip install 'paceline[observe]'.",
        show_default=False,
    ),
]


def plan(
    model: Model,
    stages: Stages,
    micro_batches: MicroBatches,
    batch: Batch,
    replicas: Replicas = 1,
    memory_limit: MemoryLimit = None,
    bandwidth: Bandwidth = None,
    schedule: Schedules = None,
    recompute: Recompute = False,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """Show how a model would train as a pipeline: costs of layers, the split, step and memory of each schedule.

    The layers are measured on this host, each with random rows, on the cores that a worker would have. Nothing is
    trained.

    \b
    Examples:
      paceline plan model.py:build_model --stages 4 --micro-batches 8 --batch 128
      paceline plan model.py:build_model --stages 2 --micro-batches 8 --batch 64 --memory-limit 2GB --schedule 1f1b
      paceline plan model.py:model --stages 2 --micro-batches 4 --batch 32 --replicas 2 --json
      paceline plan model.py:model --stages 2 --micro-batches 8 --batch 64 --schedule gpipe --schedule 1f1b --plot a.svg
    """
    require_linux()
    from paceline.cli.pictures import check_plot
    from paceline.plan.comparison import Pipeline, compare
    from paceline.plan.costs import Link

    chosen = _schedules(schedule)
    path = Path(model.rpartition(":")[0])
    if path.suffix != ".py" or not path.is_file() or not model.rpartition(":")[2].isidentifier():
        refuse(
            f"FILE:NAME: received {model!r}; expected a Python file and a name in it, e.g. "
            "model.py:build_model [option]"
        )
    check_plot(plot)
    limit = _bytes("--memory-limit", memory_limit)
    link = Link(bytes_per_second=_bytes("--bandwidth", bandwidth))
    if micro_batches > batch:
        _end(
            f"a batch of {batch} rows cannot be cut into {micro_batches} micro-batches: ask for at most {batch}, or "
            "enlarge the batch. [pipeline]"
        )
    profile = _measured(model, -(-batch // micro_batches), stages * replicas)
    pipeline = Pipeline(profile, stages, micro_batches, replicas, link, limit, recompute)
    gc.disable()  # the search for a split keeps many small objects: looking for cycles among them takes long
    try:
        comparison = compare(pipeline, _telling(chosen))
    finally:
        gc.enable()
    if as_json:
        from paceline.cli.plan_document import document

        typer.echo(json.dumps({"model": model, "batch": batch, **document(pipeline, comparison)}, indent=2))
    else:
        from paceline.cli.plan_tables import print_comparison  # rich, which help does not need

        print_comparison(pipeline, comparison)
    if plot is not None and comparison.predictions:
        _draw(plot, pipeline, comparison, schedule)
    if not comparison.predictions:
        reasons = "" if not as_json else ": " + "; ".join(f"{name}: {why}" for name, why in comparison.refusals.items())
        _end(f"no schedule can be used{reasons} [pipeline]")


def _schedules(names: list[str] | None) -> "list[Schedule]":
    from paceline.plan.schedules import NAMES, schedule_named

    try:
        return [schedule_named(name) for name in names or NAMES]
    except ValueError as fault:
        refuse(f"--schedule: {str(fault).removesuffix(' [pipeline]')} [option]")


def _draw(plot: Path, pipeline: "Pipeline", comparison: "Comparison", names: list[str] | None) -> None:
    """Those that were asked for by name, in the order of their steps; else the one that the tables have as a chart."""
    from paceline.cli.pictures import write_picture
    from paceline.cli.plan_tables import write_comparison
    from paceline.report.plan_picture import schedules

    best = comparison.fastest_synchronous
    picture = schedules([best] if best and not names else comparison.predictions)
    write_picture(plot, "paceline plan", picture, lambda console: write_comparison(console, pipeline, comparison))


def _telling(schedules: "list[Schedule]") -> "Iterator[Schedule]":
    """Each of them; of one that takes long, a line says so."""
    for number, one in enumerate(schedules, 1):
        line = f"paceline: plans {one.name} ({number} of {len(schedules)} schedules); many stages and layers take long"
        timer = threading.Timer(_PATIENCE_SECONDS, functools.partial(typer.echo, line, err=True))
        timer.daemon = True
        timer.start()
        try:
            yield one
        finally:
            timer.cancel()


def _bytes(option: str, text: str | None) -> float:
    from paceline.plan.byte_text import num_bytes

    if text is None:
        return math.inf
    try:
        return num_bytes(text)
    except ValueError as fault:
        refuse(f"{option}: {str(fault).removesuffix(' [argument]')} [option]")


def _measured(model: str, rows: int, num_workers: int) -> "Profile":
    """The model's profile, from a process of its own, which says itself what is wrong with the model."""
    from paceline.cluster import environment
    from paceline.cluster.control_groups import core_quota
    from paceline.launcher.workers.host_resources import share_cores, usable_cores
    from paceline.plan.profile import Profile
    from paceline.wire.codec import Decoder

    cores = share_cores(usable_cores(), num_workers, core_quota())[0].cores
    variables = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, environment.CPUS: ",".join(map(str, cores))}
    with tempfile.TemporaryDirectory(prefix="paceline-plan-") as folder:
        result = Path(folder, "profile.json")
        program = [sys.executable, "-P", "-m", "paceline.bootstrap.profiling", model, str(rows), str(result)]
        exit_code = subprocess.run(program, env=variables, check=False).returncode
        if exit_code == EXIT_CONFIGURATION:
            raise typer.Exit(EXIT_CONFIGURATION)
        if exit_code or not result.exists():
            typer.echo(f"paceline: {model} failed with exit code {exit_code}, as above. [plan-model]", err=True)
            raise typer.Exit(EXIT_FAILED)
        return Decoder[Profile](Profile)(result.read_bytes())


def _end(message: str) -> None:
    typer.echo(f"paceline: {message}", err=True)
    raise typer.Exit(EXIT_CONFIGURATION)
