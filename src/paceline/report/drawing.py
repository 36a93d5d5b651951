"""A figure of matplotlib as SVG that stands in a page or a file and loads nothing, drawn without a screen."""

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.figure import Figure

COLUMN_INCHES = 8.5

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: small, and can be searched
    "svg.hashsalt": "paceline",
    "text.parse_math": False,  # a metric may be called $x
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "legend.frameon": False,
}


def svg(draw: Callable[[Any], None], width: float, height: float) -> str:
    """What `draw` puts into a figure's axes.

    Args:
        draw: Takes the axes.
        width: Inches.
        height: Inches.
    """
    return svg_of_figure(lambda figure: draw(figure.add_subplot()), width, height)


def svg_of_figure(draw: Callable[[Any], None], width: float, height: float) -> str:
    """As `svg`, for figures of several axes: `draw` takes the figure."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = written.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
