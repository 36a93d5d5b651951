"""How a profile of data looks in a terminal, and as a picture."""

from pathlib import Path

from rich.console import Console

from paceline.cli.tables import export, new_console, new_table
from paceline.plan.data_profile import HEADS, DataProfile

_EXPORTED_COLUMNS = 120


def print_profile(profile: DataProfile) -> None:
    """Prints everything."""
    _write(new_console(), profile)


def export_profile(profile: DataProfile, path: Path) -> None:
    """Writes the same as a picture (.svg) or page (.html)."""
    export(path, "paceline data profile", _EXPORTED_COLUMNS, lambda console: _write(console, profile))


def _write(console: Console, profile: DataProfile) -> None:
    table = new_table(*HEADS)
    for one in profile.stages:
        table.add_row(*one.cells)
    console.print(table)
    console.print()
    for line in profile.conclusions:
        console.print(line)
