"""What a divided step costs, in words for users: `print(paceline.explain(model, data))`. Pure.

The numbers are estimates of what is sent and computed (`spmd/account.py`), not of seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.spmd.costs import Costs
from paceline.spmd.decisions import Operation

MOST_WHOLE = 0.5
"""A step of which every worker computes more than this part gathers more than it saves."""

_WIDTH = 100
_SHORTEST = 0.005
"""A share below this is not told in percents."""


@dataclass(frozen=True)
class RowsOfAll:
    """A line of code that needs the rows of all workers.

    Args:
        line: The user's, as ``loss.py:31 in contrastive``; empty: Keras needs them by itself.
        operations: The types of TensorFlow's operations there, as ``MatMul``.
        num_bytes: Of the gathered tensors, with the rows of the whole batch, in a step.
        share: Which part of the step's work follows from them and is computed by every worker, 0 to 1.
    """

    line: str
    operations: tuple[str, ...]
    num_bytes: int
    share: float

    def __str__(self) -> str:
        where = f"{self.line or 'Keras'} ({', '.join(self.operations)})"
        return f"{where}: rows of all workers, {bytes_text(self.num_bytes)} a step, {self.effect}"

    @property
    def effect(self) -> str:
        """What the rows lead to."""
        if not self.share:
            return "what follows from them is divided"
        return f"{share_text(self.share)} of the step computed by every worker"


@dataclass(frozen=True)
class Explanation:
    """What a step of `fit` sends and computes when workers divide it; all work is estimated.

    Args:
        step: The name of the step, as ``train_step``.
        num_rows: Rows of the whole batch.
        num_workers: How many workers divide it.
        num_messages: How often a step waits for a message, besides one for the number of rows, outside of loops.
        num_messages_in_loops: How often in each turn of a loop.
        summed_bytes: Of the tensors that are summed over workers in a step: gradients, losses, sums of metrics.
        gathered_bytes: Of the tensors of which every worker gets the rows of all.
        rows_of_all: The lines that need these.
        whole_share: Which part of the step's work has to do with rows of all and is computed by every worker, 0 to 1.
        worker_share: Which part of the step's work one worker computes, 0 to 1: of a step that is divided without a
            rest 1 / `num_workers`.
        not_divided: Why the step cannot be divided, so that every worker computes all of it; empty: it is divided.
    """

    step: str
    num_rows: int
    num_workers: int
    num_messages: int = 0
    num_messages_in_loops: int = 0
    summed_bytes: int = 0
    gathered_bytes: int = 0
    rows_of_all: tuple[RowsOfAll, ...] = ()
    whole_share: float = 0.0
    worker_share: float = 1.0
    not_divided: str = ""

    @property
    def is_worth_dividing(self) -> bool:
        """Whether the step is divided, and workers compute at most half of it each for themselves."""
        return not self.not_divided and self.whole_share <= MOST_WHOLE

    def __str__(self) -> str:
        title = f"{self.step}, {self.num_rows} rows a batch, {self.num_workers} workers"
        if self.not_divided:
            return _wrapped(f"{title}: it cannot be divided, so every worker computes all of it: {self.not_divided}")
        facts = [
            ("messages a step", f"{messages_text(self.num_messages, self.num_messages_in_loops)}{_COUNT}"),
            ("summed", f"{bytes_text(self.summed_bytes)} a step (gradients, losses, metrics)"),
            ("gathered", f"{bytes_text(self.gathered_bytes)} a step (rows of all workers)"),
            ("whole", f"{share_text(self.whole_share)} of the step's work is computed by every worker for all rows"),
            ("a worker computes", f"{share_text(self.worker_share)} of the step's work (estimated)"),
        ]
        lines = [title, *(f"  {name:<18} {text}" for name, text in facts)]
        if self.rows_of_all:
            lines += ["lines that need the rows of all workers", *_table(self.rows_of_all)]
        if told := advice(self.whole_share):
            lines.append(_wrapped(told))
        return "\n".join(lines)


_COUNT = ", and one for the number of rows"


def advice(whole_share: float) -> str:
    """What to tell of a step that gathers more than it saves; "" of any other."""
    if whole_share <= MOST_WHOLE:
        return ""
    return (
        f"This step gathers more than it saves: every worker computes {share_text(whole_share)} of it for all rows. "
        "Have these lines take fewer rows, or use fewer workers."
    )


def rows_of_all(costs: Costs, line_of: Callable[[Operation], str]) -> tuple[RowsOfAll, ...]:
    """The lines for which rows were gathered, in the order of the step; Keras's own come last.

    Args:
        costs: Of the step.
        line_of: The user's line that has made an operation; "": it is none.
    """
    types: dict[str, dict[str, None]] = {}
    num_bytes: dict[str, int] = {}
    shares: dict[str, float] = {}
    for sent in costs.sent:
        if sent.kind != "gather" and not (sent.kind == "sum" and sent.share):
            continue
        lines = {line_of(operation): None for operation in sent.operations} or {"": None}
        for operation in sent.operations:
            types.setdefault(line_of(operation), {})[operation.type] = None
        for line in lines:
            num_bytes[line] = num_bytes.get(line, 0) + sent.num_bytes
            shares[line] = min(shares.get(line, 0.0) + sent.share, costs.whole_share)  # which may overlap
    told = [RowsOfAll(line, tuple(types.get(line, ("outputs",))), num_bytes[line], shares[line]) for line in num_bytes]
    return tuple(sorted(told, key=lambda one: not one.line))


def explanation_of(
    costs: Costs, step: str, num_rows: int, num_workers: int, line_of: Callable[[Operation], str]
) -> Explanation:
    """What is told of a divided step."""
    return Explanation(
        step,
        num_rows,
        num_workers,
        costs.num_messages,
        costs.num_messages_in_loops,
        costs.num_bytes("sum"),
        costs.num_bytes("gather"),
        rows_of_all(costs, line_of),
        costs.whole_share,
        costs.replicated_share + (1 - costs.replicated_share) / num_workers,
    )


def messages_text(num_messages: int, num_in_loops: int) -> str:
    """How many messages a step takes, as ``3, and 1 in each turn of a loop``."""
    return f"{num_messages}{f', and {num_in_loops} in each turn of a loop' if num_in_loops else ''}"


def bytes_text(number: int) -> str:
    """A number of bytes, with two digits or more.

    >>> bytes_text(512), bytes_text(2_140_000), bytes_text(98_304)
    ('512 B', '2.1 MB', '98 kB')
    """
    value, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if unit != "B" and value < 10 else f"{value:.0f} {unit}"


def share_text(share: float) -> str:
    """A share in percents.

    >>> share_text(0.0), share_text(0.0004), share_text(0.018), share_text(0.97)
    ('0 %', 'less than 1 %', '2 %', '97 %')
    """
    return "less than 1 %" if 0 < share < _SHORTEST else f"{share:.0%}".replace("%", " %")


def _table(rows: Sequence[RowsOfAll]) -> list[str]:
    cells = [(one.line or "Keras", ", ".join(one.operations), bytes_text(one.num_bytes), one.effect) for one in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    lines = [f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d}" for a, b, c, d in cells]
    if max(map(len, lines)) <= _WIDTH:
        return lines
    return [text for a, b, c, d in cells for text in (f"  {a}"[:_WIDTH], f"    {b}"[:_WIDTH], f"    {c}, {d}"[:_WIDTH])]


def _wrapped(text: str) -> str:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)
