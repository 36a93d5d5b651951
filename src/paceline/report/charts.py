"""The charts of a report, as SVG that stands in a page and loads nothing."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.report.drawing import COLUMN_INCHES, svg
from paceline.report.summary import WORDS, HeatMap

COLOURS = dict(
    zip(
        WORDS,
        (
            "#e69f00",
            "#7f9fbf",
            "#0072b2",
            "#56b4e9",
            "#b2552d",
            "#d55e00",
            "#cc79a7",
            "#009e73",
            "#88ccaa",
            "#999999",
            "#cccccc",
            "#f0e442",
        ),
        strict=True,
    )
)


def curves(name: str, lines: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """A metric over steps.

    Args:
        name: The metric's.
        lines: By label, step and value.
    """

    def draw(axes: Any) -> None:
        for label, points in lines.items():
            known = [(step, value) for step, value in points if math.isfinite(value)]
            style = {"marker": "."} if len(known) < 30 else {}
            axes.plot([step for step, _ in known], [value for _, value in known], label=label, **style)
        axes.set_xlabel("step")
        axes.set_title(name, loc="left")
        if len(lines) > 1:
            axes.legend()

    return svg(draw, COLUMN_INCHES / 2, 2.4)


def bars(shares: Mapping[str, Mapping[str, float]]) -> str:
    """Seconds of each rank or host, by what they were spent with."""

    def draw(axes: Any) -> None:
        names = list(shares)
        ends = [0.0] * len(names)
        for word in WORDS:
            parts = [shares[name][word] for name in names]
            if any(
                part > 0.001 * max(sum(shares[name].values()), 1e-9) for part, name in zip(parts, names, strict=True)
            ):
                axes.barh(names, parts, left=ends, label=word, color=COLOURS[word])
                ends = [end + part for end, part in zip(ends, parts, strict=True)]
        axes.invert_yaxis()
        axes.set_xlabel("seconds")
        axes.figure.legend(loc="outside right upper")

    return svg(draw, COLUMN_INCHES, max(2.6, 0.9 + 0.25 * len(shares)))


def heat(map_: HeatMap, origin: int) -> str:
    """A heat map over the seconds since `origin`."""

    def draw(axes: Any) -> None:
        names = list(map_.rows)
        numbers = [[math.nan if number is None else number for number in map_.rows[name]] for name in names]
        extent = ((map_.began - origin) / 1e9, (map_.ended - origin) / 1e9, len(names) - 0.5, -0.5)
        image = axes.imshow(
            numbers, aspect="auto", interpolation="nearest", extent=extent, cmap="magma_r", vmin=0, vmax=1
        )
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("seconds since the job began")
        axes.figure.colorbar(image, ax=axes, label="share of the time")

    return svg(draw, COLUMN_INCHES, max(1.8, 0.9 + 0.25 * len(map_.rows)))
