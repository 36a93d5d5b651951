"""A `PyDataset` is taken up at a position, once, by the iterator that is read on."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.fit.sources.enqueuers import begin_at


class Adapter:
    """As Keras's reads a `PyDataset` of five batches."""

    def __init__(self, num_batches: int | None, shuffle: bool = False) -> None:
        self.py_dataset: Any = _Numbers(num_batches)
        self.shuffle = shuffle

    def _standardize_batch(self, batch: int) -> int:
        return batch

    def _finite_generator(self) -> Any:
        return iter("from the beginning")


class _Numbers(SimpleNamespace):
    def __init__(self, num_batches: int | None) -> None:
        super().__init__(num_batches=num_batches)

    def __getitem__(self, index: int) -> int:
        return index


def test_the_next_generator_begins_there_and_those_after_it_are_whole() -> None:
    adapter: Any = Adapter(5)
    begin_at(adapter, 3)
    assert [*adapter._finite_generator()] == [3, 4]
    assert "".join(adapter._finite_generator()) == "from the beginning"


def test_the_order_is_drawn_as_keras_draws_it() -> None:
    adapter: Any = Adapter(5, shuffle=True)
    random.seed(7)
    begin_at(adapter, 2)
    order = [*range(5)]
    random.Random(7).shuffle(order)
    assert [*adapter._finite_generator()] == order[2:]


@pytest.mark.parametrize("position", [0, 5])
def test_an_iterator_that_is_not_read_on_leaves_the_next_one_alone_and_draws_nothing(position: int) -> None:
    """Keras never reads the one that it makes at the end of an epoch, and drops one of which all has been read."""
    adapter: Any = Adapter(5, shuffle=True)
    before = random.getstate()
    begin_at(adapter, position)
    assert random.getstate() == before
    assert "".join(adapter._finite_generator()) == "from the beginning"
