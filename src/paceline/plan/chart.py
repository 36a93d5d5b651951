"""A timeline as text, as the papers draw it: a row for each stage, time to the right, the micro-batches' numbers."""

from collections.abc import Iterable
from itertools import chain

from paceline.plan.actions import Operation
from paceline.plan.planning import Step
from paceline.plan.simulation import Timeline

_LETTERS = {
    Operation.FORWARD: "F",
    Operation.RECOMPUTE: "R",
    Operation.BACKWARD: "B",
    Operation.BACKWARD_INPUTS: "B",
    Operation.BACKWARD_WEIGHTS: "W",
}

LEGEND = "F forward, B backward, W gradients of weights apart from B, R recomputed, a b c: the stage's chunks, = update"


def chart(timeline: Timeline, max_columns: int = 160) -> str:
    """Draws a timeline to scale.

        stage 0  F0 F1       B0--- F2 B1--- F3
        stage 1     F0 B0--- F1 B1---

    Args:
        timeline: Any.
        max_columns: A longer chart ends there, with "...".

    Returns:
        One line for each stage.
    """
    outline = timeline.outline
    several = outline.shape.num_chunks > outline.stages
    letters = {
        (operation, chunk): (letter, "abcdefghijklmnopqrstuvwxyz"[at % 26] * several)
        for stage in range(outline.stages)
        for at, chunk in enumerate(outline.shape.chunks_of(stage))
        for operation, letter in _LETTERS.items()
    }

    def label(step: Step) -> str:
        turn, number = step
        return f"{number}".join(letters[turn]) if turn else "="

    # Every label has its room, and a blank behind it: the longest one of each turn, which is the last one's.
    last = outline.micro_batches * outline.batches - 1
    every = chain.from_iterable(outline.batches_of_runs())
    widths = [
        (len(label((turn, last))) + 1) / seconds
        for turn in {turn for runs in every for number, turns in runs if number for turn in turns}
        if (seconds := timeline.costs.chunks[turn[1]].seconds(turn[0])) > 0
    ]
    scale = max(widths, default=1.0)
    rows = []
    for stage, spans in enumerate(timeline.spans()):
        name = f"stage {stage}  ".rjust(len(f"stage {outline.stages - 1}  "))
        boxes = ((round(begin * scale), round(end * scale), label(step)) for step, begin, end in spans)
        rows.append(name + _row(boxes, max_columns))
    return "\n".join(row if len(row) <= max_columns else f"{row[: max_columns - 4]} ..." for row in rows)


def _row(boxes: Iterable[tuple[int, int, str]], max_columns: int) -> str:
    row = ""
    for begin, end, label in boxes:
        width = end - begin
        box = label.ljust(width - 1, "-") if width > len(label) else label[:width]
        row = row.ljust(begin) + box
        if len(row) > max_columns:
            break  # nobody sees the rest
    return row.rstrip()
