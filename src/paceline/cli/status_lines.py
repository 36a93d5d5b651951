"""What `paceline status` and `paceline top` print of a job. Pure: from records to lines of so many columns."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from paceline.launcher.live.job_status import JobStatus, WorkerStatus

BY_HOST_FROM = 16
"""So many ranks, or workers beside parameter servers, are shown by host."""

_HEAD = 11
"""Columns of the word before what belongs to it."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """A time in its two largest units.

    >>> duration(0.4), duration(59.9), duration(3725), duration(90000)
    ('0 s', '59 s', '1 h 2 min', '1 d 1 h')
    """
    whole, parts = max(0, int(seconds)), []
    for size, unit in _UNITS:
        if number := whole // size:
            parts.append(f"{number} {unit}")
        elif parts:
            break
        whole %= size
    return " ".join(parts[:2]) or "0 s"


def status_lines(status: JobStatus, columns: int) -> list[str]:
    """All of a job."""
    begun = f"{status.state}, for {duration(status.seconds)}"
    lines = [_cut(f"job {status.job_id}  {begun}", columns)]
    for word, text in _facts(status):
        first = f"  {word:<{_HEAD - 2}} "
        lines += textwrap.wrap(
            text, columns, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
        )
    ranks = [one for one in status.workers if one.rank is not None]
    others = [one for one in status.workers if one.rank is None]
    if max(len(ranks), len(others)) < BY_HOST_FROM:
        rows = _worker_rows([*ranks, *others])
    else:
        rows = [row for some in (ranks, others) for row in _rows(some)]
    return lines + [_cut(f"  {row}", columns) for row in rows]


def top_line(status: JobStatus, columns: int) -> str:
    """The most important of a job in one line."""
    parts = [f"{duration(status.seconds)}: {status.state}", _counted(status.num_workers, "rank"), *_place(status)]
    parts += _metrics(status)
    if status.num_restarts:
        parts.append(_counted(status.num_restarts, "restart"))
    if status.step_times is not None:
        parts.append(status.step_times.text.rpartition("; ")[2])
    return _cut(", ".join(parts), columns)


def job_lines(jobs: Sequence[JobStatus], columns: int) -> list[str]:
    """Several jobs, a line for each."""
    rows = [("job", "state", "for", "ranks", "step", "program")]
    for one in jobs:
        ranks, program = str(one.num_workers), _printable(one.program)
        rows.append((one.job_id, one.state, duration(one.seconds), ranks, _of(one.step), program))
    return [_cut(line, columns) for line in _aligned(rows)]


def _facts(status: JobStatus) -> Iterator[tuple[str, str]]:
    yield "program", _printable(status.program)
    yield "launcher", f"pid {status.pid} on {status.host}"
    if place := ", ".join(_place(status)):
        age = status.step_age_seconds
        yield "training", place + (f"; last step {duration(age)} ago" if age is not None and age >= 2 else "")
    if status.epoch_ended is not None and status.epoch_ended.logs:
        yield "metrics", f"{', '.join(_metrics(status))} (epoch {status.epoch_ended.epoch + 1})"
    if status.step_times is not None:
        yield "time", status.step_times.text
    if status.straggler is not None:
        yield "straggler", status.straggler.text
    if status.snapshot is not None or status.num_failed_snapshots:
        yield "snapshots", _snapshots_text(status)
    if status.num_restarts or status.max_restarts:
        cause = f"; the last one: {status.failure}" if status.failure else ""
        yield "restarts", f"{status.num_restarts} of {status.max_restarts}{cause}"


def _place(status: JobStatus) -> list[str]:
    """Epoch, step and speed, as far as they are known; epochs from 1, as Keras shows them."""
    parts = [] if status.epoch is None else [f"epoch {status.epoch + 1}"]
    parts += [] if status.step is None else [f"step {status.step:,}"]
    return parts + ([] if status.steps_per_second is None else [f"{status.steps_per_second:.3g} steps/s"])


def _metrics(status: JobStatus) -> list[str]:
    logs = {} if status.epoch_ended is None else status.epoch_ended.logs
    return [f"{name} {'nan' if value is None else f'{value:.4g}'}" for name, value in logs.items()]


def _snapshots_text(status: JobStatus) -> str:
    parts = []
    if (last := status.snapshot) is not None:
        size, age = f"{last.bytes / 1e6:,.1f} MB", duration(status.snapshot_age_seconds or 0)
        parts.append(f"{status.num_snapshots}, the last one of step {last.step:,}, {age} ago ({last.name}, {size})")
    if status.num_failed_snapshots:
        parts.append(f"{_counted(status.num_failed_snapshots, 'shard')} could not be written")
    return "; ".join(parts)


def _rows(workers: Sequence[WorkerStatus]) -> list[str]:
    return (_worker_rows if len(workers) < BY_HOST_FROM else _host_rows)(workers)


def _worker_rows(workers: Sequence[WorkerStatus]) -> list[str]:
    rows = [("process", "rank", "host", "pid", "state", "step")]
    rows += [(one.process, _of(one.rank), one.host, str(one.pid), one.state, _of(one.step)) for one in workers]
    return _aligned(rows) if workers else []


def _host_rows(workers: Sequence[WorkerStatus]) -> list[str]:
    rows = [("host", "processes", "steps", "states")]
    for host in dict.fromkeys(one.host for one in workers):
        here = [one for one in workers if one.host == host]
        states = Counter(one.state for one in here)
        steps = sorted({one.step for one in here if one.step is not None})
        span = [f"{step:,}" for step in (steps if len(steps) < 2 else (steps[0], steps[-1]))]
        told = ", ".join(f"{number} {state}" for state, number in states.most_common())
        rows.append((host, str(len(here)), " to ".join(span) or "-", told))
    return _aligned(rows)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _of(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _printable(text: str) -> str:
    """
    >>> _printable("a\\nb \\x1b[1m\\udcff")
    'a?b ?[1m?'
    """
    return "".join(one if one.isprintable() else "?" for one in text)


def _cut(line: str, columns: int) -> str:
    """
    >>> _cut("abcdef", 6), _cut("abcdef", 5)
    ('abcdef', 'ab...')
    """
    return line if len(line) <= columns else f"{line[: max(columns - 3, 0)]}..."
