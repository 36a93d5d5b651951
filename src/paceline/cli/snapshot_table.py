"""How snapshots look in a terminal and in a pipe.

Epochs and calls of `fit` are counted from 1, as in the log of a job; the manifest counts from 0.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod

from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress
from rich.table import Table

from paceline.cli.tables import new_console, new_table
from paceline.store.manifest import DamagedSnapshot, SnapshotInfo
from paceline.store.reading import TensorHeader

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def print_entries(entries: tuple[SnapshotInfo | DamagedSnapshot, ...], now_seconds: float) -> None:
    """A line for each snapshot."""
    table = new_table("step", "epoch", "fit", "workers", "age", "size", "state")
    for entry in entries:
        if isinstance(entry, DamagedSnapshot):
            table.add_row(str(entry.step), "-", "-", "-", "-", "-", f"damaged: {entry.fault}")
        else:
            table.add_row(
                str(entry.step),
                str(entry.epoch + 1),
                str(entry.fit_call + 1),
                str(entry.world_size),
                age(now_seconds - entry.created_at_seconds),
                decimal(entry.size_bytes),
                "complete",
            )
    new_console().print(table)


def print_snapshot(
    info: SnapshotInfo,
    headers: Mapping[int, Mapping[str, TensorHeader]],
    paths: Mapping[int, Mapping[str, str]],
    now_seconds: float,
) -> None:
    """Everything about one snapshot; `headers`, and Keras's `paths` of variables, by rank and name."""
    console = new_console()
    about = Table(box=None, show_header=False, pad_edge=False)
    facts = {
        "path": info.path,
        "step": info.step,
        "epoch": info.epoch + 1,
        "fit call": info.fit_call + 1,
        "workers": info.world_size,
        "age": age(now_seconds - info.created_at_seconds),
        "size": decimal(info.size_bytes),
        **{f"notes: {name}": value for name, value in info.notes.items()},
    }
    for name, value in facts.items():
        about.add_row(name, str(value))
    console.print(about)
    for shard in info.shards:
        files = new_table(f"file of rank {shard.rank}", "size", "XXH128")
        for file in shard.files:
            files.add_row(file.name, decimal(file.size_bytes), file.checksum)
        tensors = new_table(f"tensor of rank {shard.rank}", "type", "shape", "elements", "variable")
        for name, header in headers[shard.rank].items():
            path = paths[shard.rank].get(name, "")
            tensors.add_row(name, header.dtype, str(list(header.shape)), str(prod(header.shape)), path)
        for table in (files, tensors):
            console.print()
            console.print(table)


@contextmanager
def progress(info: SnapshotInfo) -> Iterator[Callable[[int], None]]:
    """A progress line on a terminal's standard error; the function is told how many bytes more have been read."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as line:
        task = line.add_task(info.name, total=info.size_bytes)
        yield lambda num_bytes: line.advance(task, num_bytes)


def age(seconds: float) -> str:
    """A time span as people say it, in its two largest units.

    >>> age(3725)
    '1 h 2 min'
    """
    pieces: list[str] = []
    left = max(0, int(seconds))
    for unit_seconds, unit in _UNITS:
        count, left = divmod(left, unit_seconds)
        if count or pieces:
            pieces.append(f"{count} {unit}")
    return " ".join(pieces[:2]) or "0 s"
