"""A `PyDataset` as a source: its items are made by Python, by number, by some ranks of a host or by all."""

from typing import Any

from paceline.data.foreign_memory import read_at_once
from paceline.data.own_rows.local_batches import AnyDivision
from paceline.data.own_rows.stages import Whole
from paceline.fit.sources.enqueuers import begin_at, refuse_missing_items
from paceline.fit.sources.item_makers import ItemMakers, Untouched, item_makers, outlives_epoch
from paceline.fit.sources.source import Opened, Position, Replaying, Source
from paceline.strategy.base import SynchronousStrategy


class PyDatasetItems(Source):
    """See the module."""

    is_python = True
    draws_ahead = False  # but where an epoch begins

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        refuse_missing_items(opened.adapter)
        self.dataset = self.batches = read_at_once(opened.dataset)
        self.is_read_ahead = not outlives_epoch(opened.adapter, opened.steps_per_epoch)
        self._untouched: Untouched | None = opened.before_look
        self._makers: ItemMakers | None = None
        """Who makes the items, if not every rank all."""

    @property
    def py_dataset(self) -> Any:
        """See `Source`."""
        return self.adapter.py_dataset

    def share(self, strategy: SynchronousStrategy, model: Any) -> None:
        """See `Source`."""
        if strategy.fit_group.size > 1:
            spec, steps = self.dataset.element_spec, self.steps_per_epoch
            self._makers = item_makers(self.adapter, spec, steps, self._untouched, strategy)
        super().share(strategy, model)

    def draws_by_chance(self) -> bool:
        """See `Source`."""
        return bool(self.py_dataset.workers > 1)

    def begin(self) -> None:
        """See `Source`."""
        super().begin()
        if self._makers is not None:
            self._makers.items.begin()

    def ask_for(self, num_batches: int) -> None:
        """See `Source`."""
        super().ask_for(num_batches)
        if self._makers is not None:
            self._makers.ask_for(num_batches)

    def raise_fault(self) -> None:
        """See `Source`: the exception of an item."""
        if self._makers is not None:
            self._makers.items.raise_fault()

    def end(self, *, is_interrupted: bool) -> None:
        """See `Source`."""
        del is_interrupted
        if self._makers is not None:
            self._makers.items.leave()

    def go_on(self, dataset: Any, position: Position) -> Any:
        """See `Source`."""
        current = (position.batches or (0,))[-1]
        if self.adapter.enqueuer is None:
            begin_at(self.adapter, current)
            current = 0
        live = iter(dataset)
        Replaying(current, self.speaks).read(live, current)
        return live

    def _divided(self) -> AnyDivision:
        return Whole() if self._makers is None else self._makers.division
