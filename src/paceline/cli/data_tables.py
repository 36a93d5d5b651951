"""How a profile of data looks in a terminal, and as a picture."""

import io
from pathlib import Path

from rich.console import Console

from paceline.cli.tables import new_console, new_table
from paceline.plan.data_profile import HEADS, DataProfile

_EXPORTED_COLUMNS = 120


def print_profile(profile: DataProfile) -> None:
    """Prints everything."""
    _write(new_console(), profile)


def export_profile(profile: DataProfile, path: Path) -> None:
    """Writes the same as a picture (.svg) or page (.html)."""
    console = Console(record=True, file=io.StringIO(), width=_EXPORTED_COLUMNS, markup=False, highlight=False)
    _write(console, profile)
    if path.suffix == ".svg":
        console.save_svg(str(path), title="paceline data profile")
    else:
        console.save_html(str(path))


def _write(console: Console, profile: DataProfile) -> None:
    table = new_table(*HEADS)
    for one in profile.stages:
        table.add_row(*one.cells)
    console.print(table)
    console.print()
    for line in profile.conclusions:
        console.print(line)
