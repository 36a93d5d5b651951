"""A timeline as text, as the papers draw it: a row for each stage, time to the right, the micro-batches' numbers."""

from paceline.plan.actions import Compute, Operation, Update
from paceline.plan.simulation import Span, Timeline

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
    plan = timeline.plan
    several = plan.shape.num_chunks > plan.shape.num_stages

    def label(span: Span) -> str:
        done = span[0]
        if isinstance(done, Update):
            return "="
        turn = plan.shape.chunks_of(plan.shape.stage_of[done.chunk]).index(done.chunk)
        return f"{_LETTERS[done.operation]}{done.micro_batch}{'abcdefghijklmnopqrstuvwxyz'[turn % 26] * several}"

    computed = [
        span for spans in timeline.spans for span in spans if span[2] > span[1] and isinstance(span[0], Compute)
    ]
    # Every label has its room, and a blank behind it.
    scale = max(((len(label(span)) + 1) / (span[2] - span[1]) for span in computed), default=1.0)
    names = [
        f"stage {stage}  ".rjust(len(f"stage {plan.shape.num_stages - 1}  ")) for stage in range(len(plan.actions))
    ]
    rows = [
        name + _row([(*_columns(span, scale), label(span)) for span in own])
        for name, own in zip(names, timeline.spans, strict=True)
    ]
    return "\n".join(row if len(row) <= max_columns else f"{row[: max_columns - 4]} ..." for row in rows)


def _columns(span: Span, scale: float) -> tuple[int, int]:
    _, begin, end = span
    return round(begin * scale), round(end * scale)


def _row(boxes: list[tuple[int, int, str]]) -> str:
    row = ""
    for begin, end, label in boxes:
        width = end - begin
        box = label.ljust(width - 1, "-") if width > len(label) else label[:width]
        row = row.ljust(begin) + box
    return row.rstrip()
