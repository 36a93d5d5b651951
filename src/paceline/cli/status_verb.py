"""``paceline status`` and ``paceline top``: what a job of this user on this host does now.

Loads neither TensorFlow nor NumPy, and rich only for `top` on a terminal.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from paceline.cli.parameters import require_linux
from paceline.errors import EXIT_FAILED, EXIT_UNAVAILABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from paceline.launcher.live.job_status import JobStatus

_REFRESH_SECONDS = 1.0
_GONE_SECONDS = 2.0
"""A job that cannot be found for so long is over: between two generations its socket is away for a moment."""
_AGAIN_SECONDS = 0.3
"""For the same reason a job that is not found is asked once more, so much later."""
_NO_JOBS = "no job of yours runs on this host; ask on the host where `paceline run` was typed"

Job = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="The id of a job, its beginning, or the job's directory. Default: the only job of yours on this host.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs: with JOB one object, without it a list.")]


def status(job: Job = None, as_json: Json = False) -> None:
    """Show what a job does now: state, workers, epoch, step, speed, metrics, snapshots, restarts.

    Asks the launcher of a job that you have started with `paceline run` on this host. Without JOB it shows the only
    one, or lists all that run.
    """
    require_linux()
    from paceline.cli.status_lines import job_lines, status_lines
    from paceline.launcher.live.asking import NoJobError, SilentJobError, ask, directory_of
    from paceline.wire.codec import encode

    def asked() -> "list[JobStatus]":
        return _running() if job is None else [ask(directory_of(job))]

    try:
        try:
            found = asked()
        except NoJobError:
            found = []
        if not found:
            time.sleep(_AGAIN_SECONDS)
            found = asked()
    except NoJobError as fault:
        _fail(str(fault), EXIT_FAILED)
    except SilentJobError as fault:
        _fail(str(fault), EXIT_UNAVAILABLE)
    if as_json:
        documents = [json.loads(encode(one)) for one in found]
        typer.echo(json.dumps(documents if job is None else documents[0], indent=2))
    elif not found:
        typer.echo(_NO_JOBS)
    else:
        lines = status_lines(found[0], _columns()) if len(found) == 1 else job_lines(found, _columns())
        typer.echo("\n".join(lines))


def top(job: Job = None) -> None:
    """Show what a job does, again every second, until it ends or you press Ctrl-C; the job itself goes on.

    On a terminal the same as `paceline status`, and in a pipe a line each second.
    """
    require_linux()
    from paceline.launcher.live.asking import NoJobError, OtherVersionError, directory_of

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _follow(_the_only_one() if job is None else directory_of(job))
    except NoJobError as fault:
        _fail(str(fault), EXIT_FAILED)
    except OtherVersionError as fault:
        _fail(str(fault), EXIT_UNAVAILABLE)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _follow(directory: "Path") -> None:
    from paceline.launcher.live.asking import NoJobError, OtherVersionError, SilentJobError, ask

    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    seen: JobStatus | None = None
    seen_at = time.monotonic()
    with _on_terminal() if is_terminal else nullcontext(_show_line) as show:
        while True:
            try:
                seen = ask(directory)
                seen_at = time.monotonic()
                show(seen)
            except OtherVersionError:
                raise
            except SilentJobError as fault:
                typer.echo(f"paceline: {fault}", err=True)
            except NoJobError:
                if seen is None:
                    raise
                if time.monotonic() - seen_at > _GONE_SECONDS:
                    break
            time.sleep(_REFRESH_SECONDS)
    typer.echo(f"job {seen.job_id} is over")


def _show_line(seen: "JobStatus") -> None:
    from paceline.cli.status_lines import top_line

    typer.echo(top_line(seen, _columns()))


@contextmanager
def _on_terminal() -> "Iterator[Callable[[JobStatus], None]]":
    from rich.live import Live
    from rich.text import Text

    from paceline.cli.status_lines import status_lines
    from paceline.cli.tables import new_console

    with Live(console=new_console(), auto_refresh=False) as live:
        yield lambda seen: live.update(Text("\n".join(status_lines(seen, _columns()))), refresh=True)


def _running() -> "list[JobStatus]":
    """The jobs that answer; what does not is told if it is there."""
    from paceline.launcher.live.asking import NoJobError, SilentJobError, ask, own_directories

    found = []
    for directory in own_directories():
        try:
            found.append(ask(directory))
        except SilentJobError as fault:
            typer.echo(f"paceline: {fault}", err=True)
        except NoJobError:  # over, and its directory was left behind
            continue
    return sorted(found, key=lambda one: -one.seconds)


def _the_only_one() -> "Path":
    """The directory of the only job that runs. Raises: NoJobError: there is none, or there are several."""
    from paceline.cluster.job_directory import job_directory
    from paceline.launcher.live.asking import NoJobError

    found = _running()
    if not found:
        raise NoJobError(f"{_NO_JOBS} [no-job]")
    if len(found) > 1:
        listed = ", ".join(one.job_id for one in found)
        raise NoJobError(f"{len(found)} jobs of yours run on this host. Fix: name one of them: {listed} [no-job]")
    return job_directory(found[0].job_id)


def _columns() -> int:
    return shutil.get_terminal_size((80, 24)).columns


def _fail(message: str, exit_code: int) -> NoReturn:
    typer.echo(f"paceline: {message}", err=True)
    raise typer.Exit(exit_code)
