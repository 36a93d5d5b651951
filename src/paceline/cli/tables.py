"""Tables in a terminal, in a pipe, where there are no borders, colours or cut lines, and as pictures."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

_WIDE = 10_000
"""Columns: what is piped into `grep` must not be wrapped."""


def new_table(*columns: str) -> Table:
    """A table with these heads."""
    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not sys.stdout.isatty())
    return table


def new_console() -> Console:
    """Standard output."""
    return Console(markup=False, highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else _WIDE)


def export(path: Path, title: str, num_columns: int, write: Callable[[Console], None]) -> None:
    """Writes what `write` prints as a picture (.svg) or a page (.html) of so many columns."""
    console = Console(record=True, file=io.StringIO(), width=num_columns, markup=False, highlight=False)
    write(console)
    if path.suffix == ".svg":
        console.save_svg(str(path), title=title)
    else:
        console.save_html(str(path))
