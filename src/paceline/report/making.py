"""Makes of what a job has kept what people look at: the timeline, the curves for TensorBoard, the page."""

from pathlib import Path

from paceline.observe.step_files import RANKS
from paceline.report.kept_job import PAGE, TENSORBOARD, TRACE, KeptJob, read_job
from paceline.report.trace import write_trace

_EXTRA = "pip install 'paceline[observe]'"


def make_timeline(directory: Path, job: KeptJob | None = None) -> list[str]:
    """Writes ``trace.json.gz`` and the event files for TensorBoard; returns what is lacking, for the user.

    Args:
        directory: That of the records.
        job: They; None: they are read.

    Raises:
        ConfigurationError: there are no records.
        OSError: they cannot be read, or the disk is full.
    """
    job = read_job(directory) if job is None else job
    write_trace(job, directory / TRACE)
    lacking = []
    if missing := job.missing():
        who = "; ".join(f"{', '.join(map(str, ranks))} (host {host})" for host, ranks in missing.items())
        lacking.append(
            f"there are no records here of ranks {who}, which wrote into such a folder on their own host. "
            f"Fix: copy its ranks into {directory / RANKS}, then `paceline report {directory}`"
        )
    try:
        from paceline.report.tensorboard_files import write_curves  # an extra
    except ImportError as fault:
        again = f"{_EXTRA}, then `paceline report {directory}`"
        lacking.append(
            f"no curves for TensorBoard: {(fault.name or '').partition('.')[0]} is not installed. Fix: {again}"
        )
    else:
        write_curves(job, directory / TENSORBOARD)
    return lacking


def make_page(directory: Path, job: KeptJob) -> Path:
    """Writes ``report.html``; where it is.

    Raises:
        ImportError: a library of the extra is not installed.
        OSError: the disk is full.
    """
    from paceline.report.page import page_of  # an extra, and slow

    path = directory / PAGE
    partial = path.with_name(f".{path.name}")
    try:
        partial.write_text(page_of(job), encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
