"""How a plan looks in a terminal: layers and costs, the schedules beside each other, and the chart of the best one."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from paceline.cli.tables import new_console, new_table
from paceline.plan.chart import LEGEND, chart
from paceline.plan.comparison import Comparison, Pipeline, Prediction
from paceline.plan.profile import Layer

_LONGEST_BLOCK = 64
"""Rows of a block that is looked for."""


def print_comparison(pipeline: Pipeline, comparison: Comparison) -> None:
    """Prints everything; the chart is of the fastest synchronous schedule."""
    write_comparison(new_console(), pipeline, comparison)


def write_comparison(console: Console, pipeline: Pipeline, comparison: Comparison) -> None:
    """The same for any console."""
    best = comparison.fastest_synchronous
    if best:
        balance = [len(layers) for layers in best.split.chunks]
        line = f"schedule={best.schedule.name!r}, balance={balance}"
        console.print(line, soft_wrap=True, highlight=False, markup=False)
        console.print()
    console.print(_schedules(comparison))
    for name, refusal in comparison.refusals.items():
        console.print(f"{name}: {refusal}")
    console.print()
    console.print(_layers(pipeline, best))
    if best:
        console.print(f"\n{best.schedule.name}, {pipeline.micro_batches} micro-batches ({LEGEND})\n")
        console.print(chart(best.timeline, console.width), no_wrap=True)


def _layers(pipeline: Pipeline, best: Prediction | None) -> Table:
    table = new_table("layer", "stage", "forward", "B", "W", "output", "stash", "parameters", "slots")
    places = best.schedule.places(pipeline.stages) if best else ()
    stage_of = {at: places[chunk] for chunk, layers in enumerate(best.split.chunks) for at in layers} if best else {}
    layers = pipeline.profile.layers
    for first, period, times in _blocks([_row(at, layer, stage_of) for at, layer in enumerate(layers)]):
        for at in range(first, first + period):
            layer, last = layers[at], layers[at + (times - 1) * period]
            table.add_row(
                layer.name if times == 1 else f"{layer.name} to {last.name}: {times} alike",
                str(stage_of.get(at, "-")),
                *map(_milliseconds, (layer.forward_seconds, layer.inputs_seconds, layer.weights_seconds)),
                *map(decimal, (layer.output_bytes, layer.stash_bytes, layer.parameter_bytes, layer.slot_bytes)),
            )
    return table


def _row(at: int, layer: Layer, stage_of: dict[int, int]) -> tuple[Layer, int | None]:
    """What a layer's row says besides its name."""
    return replace(layer, name="", reads=()), stage_of.get(at)


def _blocks(rows: Sequence[Any]) -> Iterator[tuple[int, int, int]]:
    """(first row, rows of a block, times): equal blocks that follow each other, as of a Transformer, are told once."""
    at = 0
    while at < len(rows):
        period, times = 1, 1
        for longer in range(1, min(_LONGEST_BLOCK, (len(rows) - at) // 2) + 1):
            found, block = 1, rows[at : at + longer]
            while rows[at + found * longer : at + (found + 1) * longer] == block:
                found += 1
            if longer * (found - 1) > period * (times - 1):
                period, times = longer, found
        yield at, period, times
        at += period * times


def _schedules(comparison: Comparison) -> Table:
    table = new_table("schedule", "step", "bubble", "memory by stage", "weight versions", "layers", "gradients")
    for one in comparison.predictions:
        table.add_row(
            one.schedule.name,
            _milliseconds(one.step_seconds),
            f"{one.timeline.bubble:.0%}",
            " ".join(decimal(peak.total_bytes) for peak in one.peaks),
            " ".join(str(peak.num_versions) for peak in one.peaks),
            "+".join(str(len(layers)) for layers in one.split.chunks),
            "one process's" if one.schedule.is_synchronous else "of older weights",
        )
    return table


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
