"""Tables in a terminal, and in a pipe, where there are no borders, colours or cut lines."""

import sys

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
