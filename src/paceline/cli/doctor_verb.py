"""``paceline doctor``: whether a job could run well here, or on other hosts, and what to do where not.

Loads neither TensorFlow nor NumPy.
"""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.parameters import refuse, require_linux, takes_options
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import row
from paceline.errors import EXIT_FAILED

if TYPE_CHECKING:
    from paceline.doctor.examination import Examination
    from paceline.doctor.findings import Finding

_COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "error": typer.colors.RED}
_MAX_COLUMNS, _MIN_COLUMNS = 100, 40

Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def doctor(as_json: Json = False, **given: object) -> None:
    """Check whether a job could run well here, or on the hosts of --hosts, and say what to do where not.

    Checks versions, cores, load, memory, /dev/shm, disks and ports of each host; with several hosts also ssh, clocks,
    the speed of cores, and the network between pairs of hosts. A host that is slow with one partner is tried with
    others, so the slow host is named, and not its partners. Nothing is changed, and nothing is trained. The exit code
    is 1 if a job could not run; warnings do not count.

    \b
    Examples:
      paceline doctor
      paceline doctor --snapshot-dir snapshots
      paceline doctor --hosts a:2,b:2
      paceline doctor --hostfile hosts --json
    """
    require_linux()
    import asyncio  # slow, as are the others: not for help

    from paceline.cluster.option_sources import CommandLine, Variables, settled, users_variables
    from paceline.doctor.examination import examine
    from paceline.doctor.findings import can_run
    from paceline.launcher.other_hosts import SshOptions

    hosts, ssh = {"localhost": 0}, SshOptions()
    try:
        options = settled(JobOptions, [CommandLine(given), Variables(users_variables(os.environ))])
        if options.hosts is not None or options.hostfile is not None:
            from paceline.cli.host_options import other_hosts

            several = other_hosts(options, os.environ)
            hosts, ssh = {one.host: one.slots for one in several.hosts}, several.ssh or ssh
    except ValueError as fault:
        refuse(str(fault))
    directory = options.snapshot_dir or ""
    directory = "" if "://" in directory else directory and str(Path(directory).absolute())
    found = asyncio.run(examine(hosts, ssh, directory, lambda line: typer.echo(f"paceline: {line}", err=True)))
    can = can_run(found.findings)
    if as_json:
        typer.echo(json.dumps(_document(found, can), indent=2))
    else:
        for line in _report(found.findings, can, _columns()):
            typer.echo(line, color=_has_colours())
    if not can:
        raise typer.Exit(EXIT_FAILED)


takes_options(
    doctor,
    replace(row(JobOptions, "hosts"), help="The hosts of the job, as for `paceline run`. Default: this host alone."),
    row(JobOptions, "hostfile"),
    *(row(JobOptions, name) for name in ("ssh_port", "ssh_identity_file", "ssh_command", "remote_python")),
    replace(row(JobOptions, "snapshot_dir"), help="Where the job will take snapshots: its disk is checked, too."),
)


def _columns() -> int:
    return max(_MIN_COLUMNS, min(_MAX_COLUMNS, shutil.get_terminal_size((80, 24)).columns))


def _document(found: "Examination", can: bool) -> dict[str, Any]:
    from paceline.wire.codec import encode

    names = list(found.conditions)
    return {
        "can_run": can,
        "findings": [asdict(one) for one in found.findings],
        "hosts": {name: json.loads(encode(one)) for name, one in found.conditions.items()},
        "pairs": [
            {"hosts": [names[one] for one in pair], **json.loads(encode(met))} for pair, met in found.pairs.items()
        ],
    }


def _report(findings: "Sequence[Finding]", can: bool, columns: int) -> Iterator[str]:
    """The lines for a reader: of one host all, of several what is wrong, and which checks found nothing wrong."""
    hosts = list(dict.fromkeys(one.host for one in findings if one.host))
    for host in (*hosts, ""):
        of_host = [one for one in findings if one.host == host]
        if of_host:
            yield host or "all hosts"
        if host and len(hosts) > 1:
            well = ", ".join(dict.fromkeys(one.check for one in of_host if one.severity == "ok"))
            of_host = [one for one in of_host if one.severity != "ok"]
            yield from textwrap.wrap(f"  {'ok':<8} {well}", columns, subsequent_indent=" " * 11) if well else ()
        for one in of_host:
            yield from _lines(one, columns)
    errors, warnings = (sum(one.severity == kind for one in findings) for kind in ("error", "warning"))
    yield f"A job {'can' if can else 'cannot'} run: {_number(errors, 'error')}, {_number(warnings, 'warning')}."


def _number(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _lines(finding: "Finding", columns: int) -> Iterator[str]:
    head = f"  {finding.severity:<8} {finding.check:<9} "
    wrap = partial(textwrap.wrap, width=columns, subsequent_indent=" " * len(head), break_on_hyphens=False)
    first, *others = wrap(finding.text, initial_indent=head)
    yield first.replace(finding.severity, _coloured(finding.severity), 1)
    yield from others
    if finding.fix:
        yield from wrap(f"Fix: {finding.fix}", initial_indent=" " * len(head))


def _coloured(severity: str) -> str:
    return typer.style(severity, fg=_COLOURS[severity]) if _has_colours() else severity


def _has_colours() -> bool:
    from paceline.launcher.output.text_stream import wants_colours

    return wants_colours(sys.stdout.isatty(), os.environ)
