"""How a plan looks in a terminal: layers and costs, the schedules beside each other, and the chart of the best one."""

from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from paceline.cli.tables import export, new_console, new_table
from paceline.plan.chart import LEGEND, chart
from paceline.plan.comparison import Comparison, Pipeline, Prediction

_EXPORTED_COLUMNS = 200


def print_comparison(pipeline: Pipeline, comparison: Comparison) -> None:
    """Prints everything; the chart is of the fastest synchronous schedule."""
    _write(new_console(), pipeline, comparison)


def export_comparison(pipeline: Pipeline, comparison: Comparison, path: Path) -> None:
    """Writes the same as a picture (.svg) or page (.html)."""
    export(path, "paceline plan", _EXPORTED_COLUMNS, lambda console: _write(console, pipeline, comparison))


def _write(console: Console, pipeline: Pipeline, comparison: Comparison) -> None:
    best = comparison.fastest_synchronous
    console.print(_layers(pipeline, best))
    console.print()
    console.print(_schedules(comparison))
    for name, refusal in comparison.refusals.items():
        console.print(f"{name}: {refusal}")
    if best:
        console.print(f"\n{best.schedule.name}, {pipeline.micro_batches} micro-batches ({LEGEND})\n")
        console.print(chart(best.timeline, console.width), no_wrap=True)


def _layers(pipeline: Pipeline, best: Prediction | None) -> Table:
    table = new_table("layer", "stage", "forward", "B", "W", "output", "stash", "parameters", "slots")
    places = best.schedule.places(pipeline.stages) if best else ()
    stage_of = {at: places[chunk] for chunk, layers in enumerate(best.split.chunks) for at in layers} if best else {}
    for at, layer in enumerate(pipeline.profile.layers):
        table.add_row(
            layer.name,
            str(stage_of.get(at, "-")),
            *map(_milliseconds, (layer.forward_seconds, layer.inputs_seconds, layer.weights_seconds)),
            *map(decimal, (layer.output_bytes, layer.stash_bytes, layer.parameter_bytes, layer.slot_bytes)),
        )
    return table


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
