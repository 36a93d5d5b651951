"""What stands in for the enqueuer of a `PyDataset` with workers, on a rank that makes some of its items or none.

Keras's enqueuer has threads or processes make all items ahead, in the order that it draws where an epoch begins. Here
every rank draws that order, so their random generators stay alike, and has its threads make its own items only.
"""

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class EnqueuerOfSome:
    """Keras's enqueuer for the items of one of several ranks.

    Args:
        adapter: With Keras's own enqueuer.
        number: This rank's, from 0.
        size: How many ranks share the items out; 0: this rank makes none.
    """

    def __init__(self, adapter: Any, number: int, size: int) -> None:
        self._adapter = adapter
        self._kind = type(adapter.enqueuer)
        self._number, self._size = number, size
        self._order: list[int] = []
        self._own: list[int] = []
        self._is_running = False
        self._enqueuer: Any = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """An epoch begins, unless it has begun."""
        with self._lock:
            if self._is_running:
                return
            source = self._adapter.py_dataset
            self._order = draw_order(self._adapter)
            self._own = self._order[self._number :: self._size] if self._size else []
            if self._size:
                self._enqueuer = self._kind(
                    SomeItems(source, self._own),
                    workers=source.workers,
                    use_multiprocessing=source.use_multiprocessing,
                    max_queue_size=source.max_queue_size,
                    shuffle=False,
                )
                self._enqueuer.start()
            self._is_running = True

    def stop(self) -> None:
        """An epoch ends; waits for threads and processes."""
        with self._lock:
            self._is_running, enqueuer, self._enqueuer = False, self._enqueuer, None
        if enqueuer is not None:
            enqueuer.stop()

    def items(self) -> Iterator[Any]:
        """Those of this rank, in order."""
        self.start()
        enqueuer, num_items = self._enqueuer, len(self._own)
        made = enqueuer.get() if num_items else iter(())
        # Not stopped behind the last one: by then the next epoch may have begun.
        for item in itertools.islice(made, num_items):
            yield self._adapter._standardize_batch(item)

    def first_item(self) -> Any:
        """The first one of all."""
        return self._adapter._standardize_batch(self._adapter.py_dataset[self._order[0]])


class PresentItems:
    """The items of a source, as Keras asks for them, maybe an enqueuer in another process: none may be missing.

    Keras's enqueuer passes over an item that is None, and whoever counts items then waits for one for ever. Of endless
    items nobody counts.
    """

    def __init__(self, source: Any) -> None:
        self._source = source

    @property
    def num_batches(self) -> int | None:
        """The source's."""
        number: int | None = self._source.num_batches
        return number

    def __getitem__(self, index: int) -> Any:
        item = self._source[index]
        if item is None and self.num_batches is not None:
            raise ValueError(
                f"item {index} of the PyDataset is None: {type(self._source).__name__}.__getitem__({index}) returned "
                "nothing. Each of its items must be a batch, as it says how many there are: return one for each index, "
                "or leave the indices without data out of __len__ [missing-item]"
            )
        return item


class SomeItems:
    """Some items of a source, as an enqueuer asks for them, maybe in another process."""

    def __init__(self, source: Any, indices: Sequence[int]) -> None:
        self._items = PresentItems(source)
        self._indices = indices
        self.num_batches = len(indices)

    def __getitem__(self, index: int) -> Any:
        return self._items[self._indices[index]]


def refuse_missing_items(adapter: Any) -> None:
    """From now on an item that is None is an error where the enqueuer of a `PyDataset` makes the item."""
    if getattr(adapter, "enqueuer", None) is not None:
        adapter.enqueuer.py_dataset = PresentItems(adapter.py_dataset)


def with_items_in_order(_: Callable[..., Any]) -> Callable[..., Any]:
    """Keras's `PyDatasetAdapter._finite_generator`, which is not called: an item that is None is named."""

    def _finite_generator(self: Any) -> Iterator[Any]:
        items = PresentItems(self.py_dataset)
        for index in draw_order(self):
            yield self._standardize_batch(items[index])

    return _finite_generator


def draw_order(adapter: Any) -> list[int]:
    """The order of the items of an epoch, drawn as Keras draws it; of endless ones there is none."""
    if adapter.py_dataset.num_batches is None:
        return []
    order = list(range(adapter.py_dataset.num_batches))
    if adapter.shuffle:
        random.shuffle(order)
    return order


def begin_at(adapter: Any, position: int) -> None:
    """Makes the next generator of a `PyDatasetAdapter` begin at `position`; those after it are whole.

    One of which nothing has been read, or all, is left as it is: the next generator may be another iterator's.
    """
    source: Any = PresentItems(adapter.py_dataset)
    is_finite = source.num_batches is not None
    if position == 0 or (is_finite and position >= source.num_batches):
        return
    indices = draw_order(adapter)[position:] if is_finite else itertools.count(position)

    def generator() -> Iterator[Any]:
        begin_anyhow(adapter)
        for index in indices:
            yield adapter._standardize_batch(source[index])

    setattr(adapter, _FINITE if is_finite else _INFINITE, generator)


def begin_anyhow(adapter: Any) -> None:
    """The next generator of a `PyDatasetAdapter` may begin where Keras lets it, whatever `begin_at` has said."""
    for name in (_FINITE, _INFINITE):
        vars(adapter).pop(name, None)


_FINITE, _INFINITE = "_finite_generator", "_infinite_generator"
"""Methods of a `PyDatasetAdapter`."""
