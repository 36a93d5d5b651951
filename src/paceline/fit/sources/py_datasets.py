"""A `PyDataset` as a source, and who makes its items.

    the PyDataset                                        its items are made by
    workers=1                                            the first rank of each host; one worker's calls, in its order
    workers > 1 or processes, an epoch whole             every rank of a host its n-th: who lets threads call
                                                           `__getitem__` has said that the order of calls does not count
    the same, and items that draw random numbers, or     the first rank of each host: what an epoch leaves behind is
      change the object, as seen in those Keras looks at   then as one worker leaves it
    workers > 1, `steps_per_epoch`; ragged or sparse     every rank, all: an iterator of Keras's outlives the epoch;
      rows; one rank on each host                          rows that memory cannot be cut into; nobody to share with

The methods at the ends of an epoch are called on every rank. Before, what items have changed on their maker becomes so
on all ranks: the random generators of the process, and attributes of the object up to 4 MB.
"""

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

from paceline.comm.group import Group, Reduction
from paceline.comm.memory_ring import HostRings, form_rings, ranks_of_this_host
from paceline.data.foreign_memory import read_at_once
from paceline.data.items.item_rings import ItemRings, RingDivision, is_dense_with_rows
from paceline.data.own_rows.division import AnyDivision, Whole
from paceline.fit.run import Run
from paceline.fit.sources.enqueuers import EnqueuerOfSome, begin_anyhow, begin_at, draw_order, refuse_missing_items
from paceline.fit.sources.source import Opened, Position, Replaying, Source
from paceline.resilience.attributes import Attribute, attributes_of, encode_captured, getter_of, restore
from paceline.resilience.initial_state import InitialState
from paceline.resilience.object_state import MAX_SMALL_BYTES, Tensors, decode
from paceline.resilience.random_generators import capture_generators, drawn_from, restore_generators
from paceline.strategy.base import SynchronousStrategy

_ONE_MAKES_ALL = "one rank of each host makes all items, and each rank takes its rows of them"
_EACH_MAKES_SOME = "each rank makes every n-th item of its host, and takes its rows of all"
_HINT = "with `workers=2` in the PyDataset, each rank would make every n-th item"
_DRAWS = "as `__getitem__` draws random numbers or changes the object, the ranks do not share the items out"


class Untouched:
    """Random numbers and small attributes of a source as they are now."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._generators = capture_generators()
        self._initial_state = None if getter_of(source) else InitialState(_small_attributes(source), set())

    def drawn(self) -> set[str]:
        """The generators that numbers have been drawn from since."""
        return _drawn_since(self._generators)

    def is_changed(self) -> bool:
        """Whether the source has changed since."""
        if self._initial_state is None:
            return True  # it would take as long to tell
        return any(map(self._initial_state.has_changed, _small_attributes(self._source)))

    def changes(self) -> Any:
        """Of the source, for `put_into`."""
        tensors: Tensors = {}
        is_kept = None if self._initial_state is None else self._is_kept
        return encode_captured(self._source, tensors, "", is_kept=is_kept), tensors

    def _is_kept(self, attribute: Attribute) -> bool:
        assert self._initial_state is not None
        return _is_small(attribute) and self._initial_state.has_changed(attribute)


def _drawn_since(before: dict[str, Any]) -> set[str]:
    now = capture_generators()
    others = ("numpy_generators", "tensorflow_eager", "tensorflow_generator")
    is_alike = all(np.array_equal(np.asarray(before[one], object), np.asarray(now[one], object)) for one in others)
    return {*drawn_from(before), *([] if is_alike else ["others"])}


def _small_attributes(source: Any) -> list[Attribute]:
    return [] if getter_of(source) else [*filter(_is_small, attributes_of(source))]


def _is_small(attribute: Attribute) -> bool:
    return attribute.arrays is not None and sum(one.nbytes for one in attribute.arrays.values()) <= MAX_SMALL_BYTES


class ItemMakers:
    """The ranks that make the items of one `PyDataset`, as one of them sees it.

    Args:
        adapter: Keras's, for the data; from now on its enqueuer is this one's.
        spec: Of the items.
        rings: Of this host.
        strategy: That of the `fit`.
        deals: Whether each rank of a host makes items.
    """

    def __init__(self, adapter: Any, spec: Any, rings: HostRings, strategy: Any, *, deals: bool) -> None:
        self._adapter = adapter
        self._group: Group = strategy.fit_group
        self._makes = rings.writer is not None
        self._before: Untouched | None = None
        self._drawn: set[str] = set()
        self._is_asked = False
        self._has_enqueuer = adapter.enqueuer is not None
        self._enqueuer: EnqueuerOfSome | None = None
        if deals:
            self._enqueuer = adapter.enqueuer = EnqueuerOfSome(adapter, rings.number, rings.size)
        elif self._has_enqueuer and not self._makes:
            adapter.enqueuer = EnqueuerOfSome(adapter, 0, 0)
        own: Group = strategy.group
        first_item = None if self._enqueuer is None else self._enqueuer.first_item
        self.items = ItemRings(rings, spec, own.rank, own.size, self._make, first_item)
        one_makes_all = f"{_ONE_MAKES_ALL}; {_DRAWS if self._has_enqueuer else _HINT}"
        self.division = RingDivision(self.items, spec, _EACH_MAKES_SOME if deals else one_makes_all)
        self._begin_epoch, self._end_epoch = adapter.on_epoch_begin, adapter.on_epoch_end
        adapter.on_epoch_begin = self._on_epoch_begin
        adapter.on_epoch_end = self._on_epoch_end

    def _make(self) -> Iterator[Any]:
        """This rank's items of an iterator that is about to be read."""
        if not self._makes:
            if not self._has_enqueuer:
                begin_anyhow(self._adapter)
                draw_order(self._adapter)
            return iter(())
        if self._enqueuer is not None:
            return self._enqueuer.items()
        items = self._adapter._get_iterator()
        if not self._has_enqueuer:
            return self._watched(items)
        # Behind the last item, Keras would stop the enqueuer, which may have begun the next epoch by then.
        return itertools.islice(items, self._adapter.py_dataset.num_batches)

    def new_iterator(self) -> None:
        """A new iterator is about to be made."""
        self.items.begin()

    def ask_for(self, num_batches: int) -> None:
        """Steps have asked for so many batches of the newest iterator."""
        self._is_asked = num_batches > 0

    def _watched(self, items: Iterator[Any]) -> Iterator[Any]:
        is_first = True
        while True:
            before = capture_generators()
            try:
                item = next(items)
            except StopIteration:
                return
            drawn = _drawn_since(before)
            self._drawn |= drawn - {"python"} if is_first else drawn  # where Keras has drawn the order, too
            is_first = False
            yield item

    def _on_epoch_begin(self) -> None:
        if self._makes:  # before an enqueuer begins
            self._before = Untouched(self._adapter.py_dataset)
        self._begin_epoch()

    def _on_epoch_end(self) -> None:
        if self._is_asked:
            self._is_asked = False
            self._make_alike()
        self._end_epoch()

    def _make_alike(self) -> None:
        """What items have changed on the first rank that they have changed something on becomes so on all. Collective.

        Before the source's `on_epoch_end`, which may shuffle by what they have changed.
        """
        changes = np.frombuffer(self._changes(), np.uint8)
        everyones = self._group.all_gather(changes)
        rank, first = next(((rank, one) for rank, one in enumerate(everyones) if len(one)), (-1, changes))
        if rank in (-1, self._group.rank):
            return
        generators, left_out, (state, tensors) = pickle.loads(first.tobytes())
        restore_generators(generators, left_out=left_out)
        if state is not None:
            restore(self._adapter.py_dataset, decode(state, tensors))

    def _changes(self) -> bytes:
        before, self._before = self._before, None
        if before is None:
            return b""
        drawn, self._drawn = self._drawn, set()
        drawn = drawn | (before.drawn() if self._has_enqueuer else set())
        is_changed = before.is_changed()
        if not drawn and not is_changed:
            return b""
        left_out = {"python", "numpy"} - drawn
        return pickle.dumps((capture_generators(), left_out, before.changes() if is_changed else (None, {})))


class PyDatasetItems(Source):
    """Items that Python makes, by their numbers."""

    is_python = True
    draws_ahead = False  # but where an epoch begins

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        refuse_missing_items(opened.adapter)
        self.dataset = self.batches = read_at_once(opened.dataset)
        self.py_dataset, has_enqueuer = opened.adapter.py_dataset, opened.adapter.enqueuer is not None
        # An iterator over an enqueuer may outlive the epoch. Until the next one, whoever asks it gets an exception.
        outlives_epoch = opened.steps_per_epoch is not None or self.py_dataset.num_batches is None
        self.is_read_ahead = not (has_enqueuer and outlives_epoch)
        self._untouched: Untouched | None = opened.before_look
        self._makers: ItemMakers | None = None
        """Who makes the items, if not every rank all."""

    def share(self, strategy: SynchronousStrategy, model: Any) -> None:
        """See `Source`; who makes items, ranks agree on before."""
        makers = self._makers_of(strategy) if strategy.fit_group.size > 1 else None
        if makers is not None:
            self._makers, self.counters = makers, [makers]
            Run.ends(makers.items)
        super().share(strategy, model)

    def draws_by_chance(self) -> bool:
        """See `Source`."""
        return bool(self.py_dataset.workers > 1)

    def raise_fault(self) -> None:
        """See `Source`: the exception of an item."""
        if self._makers is not None:
            self._makers.items.raise_fault()

    def go_on(self, dataset: Any, position: Position) -> Any:
        """See `Source`."""
        current = (position.batches or (0,))[-1]
        if self.adapter.enqueuer is None:
            begin_at(self.adapter, current)
            self.begin_shares()
            current = 0
        live = iter(dataset)
        Replaying(current, self.speaks).read(live, current)
        return live

    def _divided(self) -> AnyDivision:
        return Whole() if self._makers is None else self._makers.division

    def _makers_of(self, strategy: SynchronousStrategy) -> ItemMakers | None:
        """Who makes the items; None: every rank makes all of them. Collective over `fit_group`."""
        adapter, spec, before = self.adapter, self.dataset.element_spec, self._untouched
        group: Group = strategy.fit_group
        ranks = ranks_of_this_host(group)
        can_share = is_dense_with_rows(spec) and self.is_read_ahead
        deals = adapter.enqueuer is not None and not (before is not None and (before.drawn() or before.is_changed()))
        [most_ranks] = group.all_reduce([np.array(len(ranks))], Reduction.MAX)
        all_can_share, all_deal = group.all_reduce([np.array(can_share), np.array(deals)], Reduction.MIN)
        if int(most_ranks) < 2 or not all_can_share:
            return None
        rings = form_rings(group, ranks, len(ranks) if all_deal else 1)
        return None if rings is None else ItemMakers(adapter, spec, rings, strategy, deals=bool(all_deal))
