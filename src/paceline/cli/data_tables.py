"""How a profile of data looks in a terminal."""

from rich.console import Console

from paceline.cli.tables import new_console, new_table
from paceline.plan.data_profile import HEADS, DataProfile


def print_profile(profile: DataProfile) -> None:
    """Prints everything."""
    write_profile(new_console(), profile)


def write_profile(console: Console, profile: DataProfile) -> None:
    """The same for any console."""
    table = new_table(*HEADS)
    for one in profile.stages:
        table.add_row(*one.cells)
    console.print(table)
    console.print()
    for line in profile.conclusions:
        console.print(line)
