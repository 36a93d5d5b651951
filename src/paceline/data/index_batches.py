"""This rank's batches of a source by index (`index_source.py`): its own rows are read, and mapped, no others."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.fingerprint import FingerprintLog
from paceline.data.index_source import IndexSource, source_of, with_reading
from paceline.data.own_rows import mapped_batches
from paceline.data.readings import EpochReading
from paceline.data.row_wise import is_row_wise
from paceline.data.stages import MAPS, Whole, in_order_of, is_order, name_of_map


@dataclass(frozen=True, slots=True)
class IndexDivision:
    """How the work of a dataset of a source by index is divided."""

    source: IndexSource
    stage: Any
    """The script's dataset of its batches."""
    order: tuple[Any, ...]
    """Stages behind that choose and repeat batches, in this order."""
    batch_steps: tuple[Any, ...]
    """Maps behind that have a row for each row, and prefetches, in this order."""
    stays: str = ""
    """Nothing that is worth a word is done with all rows."""

    @property
    def form(self) -> str:
        """Iterators have a position instead of a state, but for those over stages that take or skip batches."""
        behind = [compat.kind_of(one) for one in (*self.order, *self.batch_steps)]
        return f"by index 1: {','.join(behind)}"

    @property
    def mapped(self) -> list[str]:
        """The names of the functions that this rank calls for its own rows only."""
        return [name_of_map(one) for one in self.batch_steps if compat.kind_of(one) in MAPS]


def index_division_of(dataset: Any) -> IndexDivision | Whole | None:
    """The parts of a dataset of a source by index, or why its batches are made whole; None: it is not of one."""
    order, steps, one = [], [], dataset
    while (source := source_of(one)) is None:
        kind = compat.kind_of(one)
        if is_order(one):
            order.append(one)
        elif kind == "Prefetch" or (kind in MAPS and is_row_wise(one)):
            steps.append(one)
        elif kind != "Options":
            return _why_whole(one)
        inputs = compat.inputs_of(one)
        if len(inputs) != 1:
            return None
        [one] = inputs
    return IndexDivision(source, one, tuple(reversed(order)), tuple(reversed(steps)))


def _why_whole(one: Any) -> Whole | None:
    source = next(filter(None, map(source_of, compat.with_sources(one))), None)
    if source is None:
        return None
    stage = f"map `{name_of_map(one)}`" if compat.kind_of(one) in MAPS else f"the stage {compat.kind_of(one)}"
    return Whole(
        f"every rank reads all {source.name}, as {stage} behind them takes whole batches: with "
        "paceline.data.element_wise(function) a map has a row for each row"
    )


def own_rows_by_index(division: IndexDivision, rank: int, size: int, log: FingerprintLog | None) -> Any:
    """The batches of this rank of the dataset that `division` is of.

    Args:
        division: Its parts.
        rank: This rank.
        size: Number of ranks.
        log: Where to note which epoch a batch is of; None: nowhere.
    """
    source, order = division.source, division.order
    repeats = 1 if not order else int(compat.count_of(order[0]))
    if [compat.kind_of(one) for one in order] in ([], ["Repeat"]):
        reading = EpochReading(source.number, source.num_batches, repeats)
        own = with_reading(source.batches(reading, rank, size, repeats=repeats, log=log), reading)
    else:  # what has been read says where an iterator stands
        own = source.batches(EpochReading(source.number, source.num_batches), rank, size, log=log)
        for one in order:
            own = in_order_of(one, own)
    if division.mapped:
        flat = own.map(lambda *batch: tuple(tf.nest.flatten(batch)))
        spec = division.stage.element_spec
        return mapped_batches(flat, spec, division.batch_steps, None)
    for one in division.batch_steps:
        own = own.prefetch(compat.read_ahead_of(one))
    return own
