"""How fast a script would train on more workers, as a curve with its range, and what its steps would be spent with."""

from collections.abc import Sequence
from typing import Any

from paceline.plan.step_prediction import BETWEEN, COMPUTE, INPUT, MESSAGES, SLOWEST, UPDATE, Prediction
from paceline.report.charts import COLOURS
from paceline.report.drawing import COLUMN_INCHES, svg_of_figure

_PARTS = {
    INPUT: COLOURS["input"],
    COMPUTE: COLOURS["compute"],
    UPDATE: COLOURS["update"],
    MESSAGES: COLOURS["messages"],
    SLOWEST: COLOURS["waiting"],
    BETWEEN: COLOURS["between steps"],
}
"""In the order in which they follow each other in a step."""


def scaling(series: Sequence[Sequence[Prediction]]) -> str:
    """Draws predictions, as SVG: on the left how many times as fast, on the right milliseconds of a step.

    Args:
        series: For each global batch one of each number of workers.
    """

    def draw(figure: Any) -> None:
        speed, time = figure.subplots(1, 2, width_ratios=(3, 2))
        _curves(speed, series)
        _steps(time, series)
        figure.legend(*time.get_legend_handles_labels(), loc="outside lower right", ncols=3)

    return svg_of_figure(draw, COLUMN_INCHES, 3.6)


def _curves(axes: Any, series: Sequence[Sequence[Prediction]]) -> None:
    workers = sorted({one.workers for each in series for one in each})
    fewest = workers[0]
    axes.plot(workers, [size / fewest for size in workers], color="#999999", linestyle=":", label="ideal")
    for each in series:
        sizes = [one.workers for one in each]
        rows = each[0].num_rows
        [line] = axes.plot(
            sizes,
            [one.speedup.value for one in each],
            marker=".",
            label="predicted" if len(series) == 1 or rows is None else f"batches of {rows} rows",
        )
        lows, highs = ([getattr(one.speedup, end) for one in each] for end in ("low", "high"))
        axes.fill_between(sizes, lows, highs, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xticks(workers)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("workers")
    axes.set_title(f"times as fast as {fewest} worker{'' if fewest == 1 else 's'}", loc="left", fontsize=9)
    axes.legend(loc="upper left")


def _steps(axes: Any, series: Sequence[Sequence[Prediction]]) -> None:
    found = [one for each in series for one in each]
    bottoms = [0.0] * len(found)
    for part, colour in _PARTS.items():
        heights = [1e3 * one.seconds.value * one.shares.get(part, 0.0) for one in found]
        axes.bar(range(len(found)), heights, bottom=bottoms, color=colour, label=part)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_xticks(range(len(found)), [name for each in series for name in _names(each, several=len(series) > 1)])
    axes.set_xlabel("workers")
    axes.set_title("milliseconds of a step", loc="left", fontsize=9)


def _names(each: Sequence[Prediction], *, several: bool) -> list[str]:
    """Of the bars of a batch size: numbers of workers, and in the middle the size."""
    names = [str(one.workers) for one in each]
    if several:
        names[len(names) // 2] += f"\n{each[0].num_rows} rows"
    return names
