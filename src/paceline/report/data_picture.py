"""What the stages of an input pipeline cost, as bars: what is waiting, and what is computing."""

from collections.abc import Callable
from typing import Any

from paceline.plan.data_profile import DataProfile, StageCost
from paceline.report.drawing import COLUMN_INCHES, svg

_KINDS: tuple[tuple[str, str, Callable[[StageCost], float]], ...] = (
    ("computes", "#56b4e9", lambda one: 0.0 if one.waits is None else 1 - one.waits),
    ("waits", "#e69f00", lambda one: one.waits or 0.0),
    ("computes or waits", "#999999", lambda one: float(one.waits is None)),
)


def stages(profile: DataProfile) -> str:
    """Draws a profile, as SVG: a row for each stage, from the source on."""

    def draw(axes: Any) -> None:
        rows = range(len(profile.stages))
        lefts = [0.0] * len(profile.stages)
        for label, colour, share_of in _KINDS:
            parts = [one.seconds_per_row * 1e6 * share_of(one) for one in profile.stages]
            if any(parts):
                axes.barh(rows, parts, left=lefts, label=label, color=colour)
                lefts = [left + part for left, part in zip(lefts, parts, strict=True)]
        for row, one in enumerate(profile.stages):
            axes.annotate(f" {one.share:.0%}", (lefts[row], row), va="center")
        axes.set_yticks(rows, [one.name for one in profile.stages])
        axes.invert_yaxis()
        axes.set_xlim(0, 1.08 * max(lefts) or 1)
        axes.set_xlabel("us a row")
        axes.set_title(f"{profile.rows_per_second:.0f} rows/s in one worker", loc="left", fontsize=9)
        axes.figure.legend(loc="outside upper right", ncols=len(_KINDS))

    return svg(draw, COLUMN_INCHES, max(2.0, 1.0 + 0.3 * len(profile.stages)))
