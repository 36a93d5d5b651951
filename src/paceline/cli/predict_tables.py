"""How predictions look in a terminal."""

from collections.abc import Sequence

from rich.console import Console

from paceline.cli.tables import new_console, new_table
from paceline.plan.step_prediction import COMPUTE, Estimate, Prediction


def print_predictions(found: Sequence[Prediction], advice: Sequence[str]) -> None:
    """Prints everything."""
    write_predictions(new_console(), found, advice)


def write_predictions(console: Console, found: Sequence[Prediction], advice: Sequence[str]) -> None:
    """The same for any console."""
    table = new_table(
        *("workers", "hosts", "batch", "rows each", "step", "range", "steps/s", "times as fast", "range", "efficiency"),
        "a step is spent with",
    )
    for one in found:
        table.add_row(
            str(one.workers),
            str(one.hosts),
            *_rows(one),
            f"{1e3 * one.seconds.value:.3g} ms",
            f"{1e3 * one.seconds.low:.3g} to {1e3 * one.seconds.high:.3g} ms",
            f"{1 / one.seconds.value:.3g}",
            f"{one.speedup.value:.2f}",
            _span(one.speedup),
            f"{one.efficiency.value:.0%}",
            _spent(one),
        )
    console.print(table)
    console.print()
    for sentence in advice:
        console.print(sentence)


def _rows(one: Prediction) -> tuple[str, str]:
    if one.num_rows is None:
        return "?", "?"
    fewest, most = one.num_rows // one.workers, -(-one.num_rows // one.workers)
    return str(one.num_rows), str(most) if fewest == most else f"{fewest} to {most}"


def _span(one: Estimate) -> str:
    return f"{one.low:.2f} to {one.high:.2f}"


def _spent(one: Prediction) -> str:
    """The parts that are worth a word, the largest first."""
    parts = sorted(one.shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in parts if share >= _SHOWN) or COMPUTE


_SHOWN = 0.05
