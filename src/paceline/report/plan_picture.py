"""A pipeline's schedules as bars: a row for each stage, a bar for each F, B and W, on one axis of time."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from paceline.plan.actions import Operation
from paceline.plan.comparison import Prediction
from paceline.plan.planning import Step
from paceline.report.drawing import COLUMN_INCHES, svg_of_figure

_MOST_BARS = 400
"""Of a stage; what follows is not drawn: bars would be thinner than a line."""

_INCHES_OF_A_CHARACTER = 0.065
_AXIS_INCHES = 7.5

_KINDS = {
    Operation.FORWARD: ("#56b4e9", "F: forward"),
    Operation.RECOMPUTE: ("#cccccc", "R: forward again"),
    Operation.BACKWARD: ("#e69f00", "B: backward"),
    Operation.BACKWARD_INPUTS: ("#e69f00", "B: backward"),
    Operation.BACKWARD_WEIGHTS: ("#009e73", "W: gradients of weights, apart from B"),
    None: ("#999999", "update"),
}
"""Colours that also the colour-blind tell apart."""

Bar = tuple[Operation | None, float, float, str]
"""What is done, its begin and length in seconds, and what stands in it."""


def schedules(predictions: Sequence[Prediction]) -> str:
    """Draws schedules below each other, as SVG.

    Args:
        predictions: At least one.
    """
    bars = [[list(itertools.islice(stage, _MOST_BARS)) for stage in _bars(one)] for one in predictions]
    last = _last_second(predictions, bars)
    scale, unit = (1000, "ms") if last < 1 else (1, "s")

    def draw(figure: Any) -> None:
        panels = figure.subplots(len(predictions), squeeze=False, sharex=True)[:, 0]
        for axes, one, stages in zip(panels, predictions, bars, strict=True):
            for row, stage in enumerate(stages):
                _draw_stage(axes, row, [bar for bar in stage if bar[1] < last], scale, last)
            axes.set_yticks(range(len(stages)), [f"stage {number}" for number in range(len(stages))])
            axes.tick_params(axis="y", length=0)
            axes.set_ylim(len(stages) - 0.5, -0.5)
            axes.set_xlim(0, last * scale)
            axes.set_title(_title(one), loc="left", fontsize=9)
        panels[-1].set_xlabel(unit)
        kinds = {bar[0] for stages in bars for stage in stages for bar in stage}
        known = dict(_KINDS[kind] for kind in _KINDS if kind in kinds)
        swatches = [panels[0].barh([0], [0], color=colour, label=words) for colour, words in known.items()]
        figure.legend(handles=swatches, loc="outside upper right", ncols=len(swatches))

    return svg_of_figure(draw, COLUMN_INCHES, 0.9 + sum(0.45 + 0.3 * len(stages) for stages in bars))


def _last_second(predictions: Sequence[Prediction], bars: list[list[list[Bar]]]) -> float:
    """Where the axis ends: it is one for all, so that what is shorter is faster.

    A plan of an asynchronous schedule has several batches: beside others only its beginning is drawn.
    """
    # Where a stage has too many bars, all rows end with them.
    cuts = [_end(stage) for stages in bars for stage in stages if len(stage) == _MOST_BARS]
    wholes = [
        max(map(_end, stages))
        for one, stages in zip(predictions, bars, strict=True)
        if one.schedule.is_synchronous or not any(other.schedule.is_synchronous for other in predictions)
    ]
    return min([max(wholes), *cuts])


def _end(stage: list[Bar]) -> float:
    _, begin, length, _ = stage[-1]
    return begin + length


def _title(one: Prediction) -> str:
    seconds = one.step_seconds
    step = f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
    batches = one.timeline.outline.batches
    return f"{one.schedule.name}: a step {step}, stages wait {max(0.0, one.timeline.bubble):.0%}" + (
        f"; {batches} batches without a gap" if batches > 1 else ""
    )


def _bars(one: Prediction) -> Iterator[Iterator[Bar]]:
    """By stage."""
    shape = one.timeline.outline.shape
    for stage, spans in enumerate(one.timeline.spans()):
        chunks = list(shape.chunks_of(stage))
        letters = dict(zip(chunks, "abcdefghijklmnopqrstuvwxyz" if len(chunks) > 1 else [""], strict=False))
        yield ((_operation(step), begin, end - begin, _label(step, letters)) for step, begin, end in spans)


def _operation(step: Step) -> Operation | None:
    turn, _ = step
    return turn[0] if turn else None


def _label(step: Step, letters: dict[int, str]) -> str:
    turn, number = step
    return f"{number}{letters.get(turn[1], '')}" if turn else ""


def _draw_stage(axes: Any, row: int, bars: list[Bar], scale: float, last: float) -> None:
    axes.broken_barh(
        [(begin * scale, length * scale) for _, begin, length, _ in bars],
        (row - 0.4, 0.8),
        facecolors=[_KINDS[kind][0] for kind, *_ in bars],
        edgecolor="white",
        linewidth=0.5,
    )
    for _, begin, length, label in bars:
        is_whole = begin + length <= last
        if label and is_whole and length / last * _AXIS_INCHES > _INCHES_OF_A_CHARACTER * (len(label) + 0.5):
            middle = (begin + length / 2) * scale
            axes.text(middle, row, label, ha="center", va="center", fontsize=7)
