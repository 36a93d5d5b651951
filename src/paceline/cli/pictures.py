"""`--plot FILE`: what a verb tells, drawn as a picture, or as a page of picture and tables. Both load nothing."""

import html
import importlib.util
import io
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from paceline.cli.parameters import refuse

_SUFFIXES = (".svg", ".html")
_COLUMNS = 200

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title></head>
<body style="font-family: sans-serif">
<h1>{title}</h1>
{picture}
<pre style="overflow-x: auto">{{code}}</pre>
</body>
</html>
"""


def check_plot(plot: Path | None) -> None:
    """Refuses what could not be drawn, before anything is measured."""
    if plot is None:
        return
    if plot.suffix not in _SUFFIXES:
        refuse(f"--plot: received {str(plot)!r}; expected a name that ends in .svg or .html [option]")
    if importlib.util.find_spec("matplotlib") is None:
        refuse("--plot: matplotlib is not installed. Fix: pip install 'paceline[observe]' [observe]")


def write_picture(path: Path, title: str, picture: str, write: Callable[[Console], None]) -> None:
    """Writes the picture (.svg), or a page (.html) of the picture and what `write` prints.

    Args:
        path: Of the file.
        title: Of the page.
        picture: SVG.
        write: Prints the tables.
    """
    if path.suffix == ".svg":
        path.write_text(picture, encoding="utf-8")
        return
    console = Console(record=True, file=io.StringIO(), width=_COLUMNS, markup=False, highlight=False)
    write(console)
    # What stands in braces would be taken for a field of the page.
    escaped = picture.replace("{", "{{").replace("}", "}}")
    page = _PAGE.format(title=html.escape(title), picture=escaped)
    path.write_text(console.export_html(code_format=page, inline_styles=True), encoding="utf-8")
