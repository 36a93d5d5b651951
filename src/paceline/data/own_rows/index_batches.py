"""This rank's batches of a source by index (`index_source.py`): its own rows are read, and mapped, no others."""

from dataclasses import dataclass
from typing import Any

from paceline.data import compat
from paceline.data.batch_rows import local_slice
from paceline.data.fingerprint import FingerprintLog
from paceline.data.indexed.index_source import IndexedBatches, source_of, with_reading
from paceline.data.own_rows.division import AnyDivision, Whole
from paceline.data.own_rows.orders import in_order_of, is_order
from paceline.data.own_rows.own_rows import packing
from paceline.data.own_rows.row_wise import fixed_rows, is_row_wise, rows_of_map
from paceline.data.own_rows.share_table import ShareTable
from paceline.data.own_rows.staying_maps import MAPS, name_of_map


@dataclass(frozen=True, slots=True)
class IndexDivision(AnyDivision):
    """Rows are chosen before they are read."""

    source: IndexedBatches
    stage: Any
    """The script's dataset of its batches."""
    order: tuple[Any, ...]
    """Stages behind that choose and repeat batches, in this order."""
    maps: tuple[Any, ...]
    """Those behind, which have a row for each row, in this order."""
    stays = ""

    @property
    def work(self) -> str:
        """See `AnyDivision`."""
        return self.source.work

    @property
    def form(self) -> str:
        """Iterators have a position instead of a state, but for those over stages that take or skip batches."""
        behind = [compat.kind_of(one) for one in (*self.order, *self.maps)]
        return f"by index 2: {','.join(behind)}"

    @property
    def counts_epochs(self) -> bool:
        """Whether an epoch and a batch say where an iterator stands; else what has been read says so."""
        return [compat.kind_of(one) for one in self.order] in ([], ["Repeat"])

    @property
    def follows_table(self) -> bool:
        """See `AnyDivision`: maps that were traced for so many rows are called for as many."""
        return self.source.follows_table and not any(map(fixed_rows, self.maps))

    def batches(
        self, dataset: Any, rank: int, size: int, log: FingerprintLog | None, table: ShareTable | None = None
    ) -> Any:
        """See `AnyDivision`; an iterator that goes on has fewer batches than the dataset. Epochs are compared."""
        source, order, maps = self.source, self.order, self.maps
        spec = maps[-1].element_spec if maps else self.stage.element_spec

        def behind(flat: list[Any]) -> Any:  # one stage costs less than several
            for one in maps:
                flat = rows_of_map(one, range(*local_slice(fixed_rows(one) or 0, rank, size)), flat)
            return packing(spec, None)(*flat)

        if self.counts_epochs:
            repeats = int(compat.count_of(order[0])) if order else 1
            reading = source.reading(repeats)
            own = source.batches(reading, rank, size, repeats=repeats, log=log, behind=behind, table=table)
            return with_reading(own, reading).with_options(dataset.options())
        own = source.batches(source.reading(), rank, size, log=log, behind=behind, table=table)
        for one in order:
            own = in_order_of(one, own)
        return own.with_options(dataset.options())


def index_division_of(dataset: Any) -> IndexDivision | Whole | None:
    """The parts of a dataset of a source by index, or why its batches are made whole; None: it is not of one."""
    order, maps, one = [], [], dataset
    while (source := source_of(one)) is None:
        kind = compat.kind_of(one)
        if is_order(one):
            order.append(one)
        elif kind in MAPS and is_row_wise(one):
            maps.append(one)
        elif kind not in ("Options", "Prefetch"):
            return _why_whole(one)
        inputs = compat.inputs_of(one)
        if len(inputs) != 1:
            return None
        [one] = inputs
    return IndexDivision(source, one, tuple(reversed(order)), tuple(reversed(maps)))


def _why_whole(one: Any) -> Whole | None:
    source = next(filter(None, map(source_of, compat.with_sources(one))), None)
    if source is None:
        return None
    if compat.kind_of(one) in MAPS:
        return Whole(
            f"every rank reads all {source.name}, as map `{name_of_map(one)}` behind them takes whole batches: with "
            "paceline.data.element_wise(function) a map has a row for each row"
        )
    return Whole(
        f"every rank reads all {source.name}, as the stage `{compat.method_of(one)}` is behind them: without it, each "
        "would read its own"
    )
