"""``paceline predict``: how fast a script would train on more workers or hosts, from short jobs of a few workers here.

Each job is a real one of `paceline run`, whose workers stand in for all (`paceline.bootstrap.step_sampling`). Loads
neither TensorFlow nor NumPy.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from paceline.cli.parameters import refuse, require_linux, takes_options
from paceline.cluster import environment
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import row, rows
from paceline.errors import EXIT_FAILED, EXIT_UNAVAILABLE

if TYPE_CHECKING:
    from paceline.plan.step_prediction import Network
    from paceline.plan.step_samples import StepSamples

_STEPS = 40
_SHOWN_LINES = 30
"""Of what a job has printed, if it fails."""
_KEPT = frozenset(row(JobOptions, name).variable for name in ("batch_statistics", "bind", "drop_in", "rank_variables"))
"""Variables of options that say how a step is computed; others would keep snapshots, or start other hosts."""

Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python file that calls fit.", show_default=False)]
Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="The script's own, behind --.", show_default=False)
]
Workers = Annotated[
    str, typer.Option(metavar="N,N,...", help="Numbers of workers, on all hosts together.", show_default=False)
]
Hosts = Annotated[
    str | None,
    typer.Option(
        metavar="N|A,B",
        help="How many hosts like this one, with --link; or their names, as ssh takes them, and the network between "
        "them is measured. Default: this host alone.",
        show_default=False,
    ),
]
LinkText = Annotated[
    str | None,
    typer.Option(
        metavar="BANDWIDTH,TIME",
        help="The network between hosts: bits per second, and how long a small message takes there and back.",
        show_default=False,
    ),
]
Batches = Annotated[
    str | None,
    typer.Option(
        metavar="ROWS,ROWS,...",
        help="Global batches to compare, where fit is given arrays. Default: the script's.",
        show_default=False,
    ),
]
Steps = Annotated[
    int, typer.Option(metavar="N", min=10, help=f"Steps of each measurement. Default: {_STEPS}.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Also draw the speed by the number of workers to this file: .svg, or .html with the table, too. Needs pip "
        "install 'paceline[observe]'.",
        show_default=False,
    ),
]


def predict(
    script: Script,
    workers: Workers,
    arguments: Arguments = None,
    hosts: Hosts = None,
    link: LinkText = None,
    batch: Batches = None,
    steps: Steps = _STEPS,
    as_json: Json = False,
    plot: Plot = None,
    **given: object,
) -> None:
    """Predict how fast a script trains on more workers or hosts, what limits it, and how many workers are worth it.

    Runs the script up to its first fit, once for each number of workers, and makes some steps there: with the rows
    that each worker would have, as many workers at once as a host would have, and the messages of the whole job. The
    network between hosts is given or measured, not used. Callbacks and validation are left out; what is trained is
    thrown away.

    \b
    Examples:
      paceline predict train.py --workers 1,2,4
      paceline predict train.py --workers 1,2,4,8 --hosts 2 --link 1Gbit,0.2ms
      paceline predict train.py --workers 2,4 --hosts a,b -- --epochs 3
      paceline predict train.py --workers 4 --batch 64,128,256
      paceline predict train.py --workers 1,2,4,8,16 --hosts 16 --link 10Gbit,0.1ms --plot speed.svg
    """
    require_linux()
    from paceline.cli.pictures import check_plot
    from paceline.plan.step_prediction import advice, hosts_of, predictions

    check_plot(plot)
    if not script.is_file():
        refuse(f"SCRIPT: there is no file {str(script)!r} [option]")
    sizes = _numbers("--workers", workers, "1,2,4")
    batches = [0] if batch is None else _numbers("--batch", batch, "64,128")
    num_hosts, network = _network(hosts, link, given)
    at_once = _most_at_once()
    series, number = [], 0
    for rows_of_batch in batches:
        measured = []
        for size in sizes:
            number += 1
            present = min(hosts_of(size, num_hosts)[1], at_once)
            whole = f" of {size}" if present < size else ""
            asked = f", global batch {rows_of_batch}" if rows_of_batch else ""
            here = f"{present}{whole} worker{'' if size == 1 else 's'}{asked}"
            _say(f"measures {here} (job {number} of {len(batches) * len(sizes)}) ...")
            measured.append(_measured([str(script), *(arguments or ())], size, present, steps, rows_of_batch, here))
        series.append(predictions(measured, num_hosts, network))
    told = advice(series)
    found = [one for each in series for one in each]
    if as_json:
        document = {
            "script": str(script),
            "hosts": num_hosts,
            "network": None if network is None else asdict(network),
            "predictions": [{**asdict(one), "limit": one.limit} for one in found],
            "advice": told,
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        from paceline.cli.predict_tables import print_predictions  # rich, which help does not need

        print_predictions(found, told)
    if plot is not None:
        from paceline.cli.pictures import write_picture
        from paceline.cli.predict_tables import write_predictions
        from paceline.report.prediction_picture import scaling

        write_picture(
            plot, "paceline predict", scaling(series), lambda console: write_predictions(console, found, told)
        )


takes_options(
    predict, *(row(JobOptions, name) for name in ("ssh_port", "ssh_identity_file", "ssh_command", "remote_python"))
)


def _numbers(option: str, text: str, example: str) -> list[int]:
    if not re.fullmatch(r"\s*[1-9]\d{0,5}\s*(,\s*[1-9]\d{0,5}\s*)*", text):
        refuse(
            f"{option}: received {text!r}; expected numbers from 1 on with commas between them, e.g. {example} [option]"
        )
    return sorted({int(number) for number in text.split(",")})


def _most_at_once() -> int:
    """How many workers this host runs, each with a core."""
    from paceline.cluster.control_groups import core_quota
    from paceline.launcher.workers.host_resources import num_workers_for, usable_cores

    return num_workers_for(usable_cores(), core_quota(), ())


def _network(hosts: str | None, link: str | None, given: dict[str, object]) -> "tuple[int, Network | None]":
    """The number of hosts, and the network between them, as the user says, or as measured."""
    from paceline.plan.network_text import read_network

    network = None
    if link is not None:
        try:
            network = read_network(link)
        except ValueError as fault:
            refuse(f"--link: {fault} [option]")
    if hosts is None or hosts == "1":
        return 1, None
    if hosts.isdecimal():
        if network is None or int(hosts) < 1:
            refuse(
                f"--hosts: received {hosts}; expected a number above 0 with the network between them, e.g. --hosts 2 "
                "--link 1Gbit,0.2ms, or the names of hosts, between which it is measured [option]"
            )
        return int(hosts), network
    return _of_named_hosts(hosts, network, given)


def _of_named_hosts(hosts: str, network: "Network | None", given: dict[str, object]) -> "tuple[int, Network | None]":
    from paceline.cli.host_options import other_hosts
    from paceline.cluster.option_sources import CommandLine, Variables, settled, users_variables

    try:
        options = settled(JobOptions, [CommandLine({**given, "hosts": hosts}), Variables(users_variables(os.environ))])
        several = other_hosts(options, os.environ)
    except ValueError as fault:
        refuse(str(fault))
    names = {one.host: one.slots for one in several.hosts}
    if network is not None or len(names) < 2:
        return len(names), network
    import asyncio  # slow, as are the others: not for help

    from paceline.doctor.examination import examine
    from paceline.launcher.other_hosts import SshOptions
    from paceline.plan.step_prediction import Network

    found = asyncio.run(examine(names, several.ssh or SshOptions(), "", _say))
    met = list(found.pairs.values())
    if len(found.conditions) < len(names) or not met or any(one.fault for one in met):
        reasons = "; ".join(f"{one.host or 'network'}: {one.text}" for one in found.findings if one.severity == "error")
        typer.echo(
            f"paceline: the network between {', '.join(names)} could not be measured ({reasons}). See `paceline doctor "
            f"--hosts {hosts}`, or say what it is: --link 1Gbit,0.2ms [predict]",
            err=True,
        )
        raise typer.Exit(EXIT_UNAVAILABLE)
    return len(names), Network(max(one.round_trip_seconds for one in met), min(one.bytes_per_second for one in met))


def _measured(
    program: Sequence[str], size: int, present: int, num_steps: int, num_rows: int, here: str
) -> "StepSamples":
    """Steps of a job of `size` workers, of which `present` are started here."""
    from paceline.plan.step_samples import StepSamples
    from paceline.wire.codec import Decoder

    other = {one.variable for one in rows(JobOptions)} - _KEPT
    variables = {name: value for name, value in os.environ.items() if name not in {*other, environment.TF_CONFIG}}
    variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with tempfile.TemporaryDirectory(prefix="paceline-predict-") as folder:
        result, printed = Path(folder, "steps.json"), Path(folder, "printed")
        job = ["--standalone", "--workers", str(present), "--communication", "mpi", "--verify", "off"]
        sampling = ["-m", "paceline.bootstrap.step_sampling", str(result), str(size), str(num_steps), str(num_rows)]
        command = [sys.executable, "-P", "-m", "paceline", "run", *job, *sampling, *program]
        with printed.open("wb") as output:
            ended = subprocess.run(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
            )
        if ended.returncode or not result.exists():
            _end_with(printed.read_text(errors="replace"), here, ended.returncode or EXIT_FAILED)
        return Decoder[StepSamples](StepSamples)(result.read_bytes())


def _end_with(printed: str, here: str, exit_code: int) -> NoReturn:
    for line in printed.splitlines()[-_SHOWN_LINES:]:
        typer.echo(line, err=True)
    _say(f"the job with {here} failed with exit code {exit_code}, as above. [predict]")
    raise typer.Exit(exit_code)


def _say(line: str) -> None:
    typer.echo(f"paceline: {line}", err=True)
