"""The contract of a `Source`, for each kind of data: the ranks' rows, and the way back to a position."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline.data
from paceline.data.indexed import readings
from paceline.data.own_rows.local_batches import mark_as_local
from paceline.fit import compat
from paceline.fit.epochs import epoch_iterator_class
from paceline.fit.sources.kinds import source_of
from paceline.fit.sources.source import Opened, Position, Source
from paceline.resilience.random_generators import capture_generators, restore_generators
from paceline.seams.install import install_with_keras

install_with_keras()

NUM_ROWS = 22
BATCH_ROWS = 4


def numbers() -> Any:
    return tf.data.Dataset.range(NUM_ROWS)


def shuffled() -> Any:
    return numbers().shuffle(7, seed=5)


class Items(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return np.arange(index * BATCH_ROWS, (index + 1) * BATCH_ROWS)[:, np.newaxis], np.zeros(BATCH_ROWS)


def items() -> Iterator[Any]:
    number = 0
    while True:
        yield np.full((BATCH_ROWS, 1), number) + np.arange(BATCH_ROWS)[:, np.newaxis], np.zeros(BATCH_ROWS)
        number += BATCH_ROWS


@dataclass(frozen=True)
class Kind:
    """How data are made in each process, and what Keras is told of them."""

    make: Callable[[], Any]
    told: tuple[tuple[str, Any], ...] = ()
    are_shared: bool = True


KINDS = {
    "tf.data": Kind(lambda: shuffled().map(lambda row: row + 1).batch(BATCH_ROWS)),
    "tf.data, shuffled again": Kind(lambda: shuffled().batch(BATCH_ROWS).shuffle(3, seed=6)),
    "tf.data, repeated": Kind(lambda: shuffled().repeat(2).batch(BATCH_ROWS)),
    "tf.data, of which iterators have no state": Kind(lambda: shuffled().map(_python).batch(BATCH_ROWS)),
    "arrays": Kind(lambda: np.arange(NUM_ROWS), (("batch_size", BATCH_ROWS), ("shuffle", True))),
    "rows": Kind(lambda: paceline.data.rows(np.arange(NUM_ROWS), BATCH_ROWS, shuffle=True)),
    "rows, repeated": Kind(lambda: paceline.data.rows(np.arange(NUM_ROWS), BATCH_ROWS, shuffle=True).repeat(2)),
    "rows, of which some are left out": Kind(
        lambda: paceline.data.rows(np.arange(NUM_ROWS), BATCH_ROWS, shuffle=True).take(5)
    ),
    "PyDataset": Kind(Items, (("shuffle", True),)),
    "generator": Kind(items, (("steps_per_epoch", 6),)),
    "own batches": Kind(lambda: mark_as_local(shuffled().batch(BATCH_ROWS)), are_shared=False),
    "own batches of rows": Kind(
        lambda: tf.distribute.get_strategy().experimental_distribute_dataset(_own_rows()), are_shared=False
    ),
}


def _python(row: Any) -> Any:
    return tf.ensure_shape(tf.py_function(lambda one: one, [row], tf.int64), [])


def _own_rows() -> Any:
    rows = paceline.data.rows(np.arange(NUM_ROWS), BATCH_ROWS, shuffle=True)
    return mark_as_local(source_of(Opened(rows, None, SimpleNamespace(num_batches=None), rows, None)).rows(0, 1))


def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is in another process, which has the same seeds."""
    monkeypatch.setattr(readings, "_shared", readings._Shared())
    keras.utils.set_random_seed(3)


def opened(kind: Kind, size: int = 1) -> Source:
    """The source as one process opens it."""
    make = epoch_iterator_class(compat.trainer_module.TFEpochIterator)
    epochs = make(tf.distribute.get_strategy(), x=kind.make(), **dict(kind.told))
    source: Source = epochs.source
    if size == 1:
        return source
    return source_of(Opened(source.given, None, source.adapter, source.adapter.get_tf_dataset(), None), size)


def values(batch: Any) -> list[Any]:
    return np.asarray(tf.nest.flatten(batch)[0]).reshape(-1).tolist()  # type: ignore[no-any-return]


def read(source: Source, live: Any, first: int, end: int | None) -> list[list[Any]]:
    """The batches first, …, end - 1 of an iterator, as steps take them; None: all that are left, or some."""
    found = []
    while end is None or first < end:
        source.ask_for(first + 1)
        if (batch := next(live, None)) is None or first > 9:
            break
        found.append(values(batch))
        first += 1
    return found


def rows_of(source: Source, rank: int, size: int) -> list[list[Any]]:
    """Some batches of one iterator."""
    batches = source.rows(rank, size)
    source.begin()
    return read(source, iter(batches), 0, 5)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.are_shared])
def test_rows_of_ranks_are_those_of_one(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    process(monkeypatch)
    alone = rows_of(opened(KINDS[name]), 0, 1)
    assert len(alone) == 5
    ranks = []
    for rank in range(size):
        process(monkeypatch)
        ranks.append(rows_of(opened(KINDS[name], size), rank, size))
    assert [[*itertools.chain(*batches)] for batches in zip(*ranks, strict=True)] == alone


@pytest.mark.parametrize("batches", [(2, 0, 3), (4, 1, 0)], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_a_position_leads_to_the_same_rows(name: str, batches: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one behind iterators that nobody has read, as Keras makes them at the end of an epoch."""
    process(monkeypatch)
    first = opened(KINDS[name])
    for number in batches:
        begun = capture_generators()
        first.begin()
        live = first.made(first.batches)
        read(first, live, 0, number)
    told = asdict(first.position(batches, live))
    written = json.dumps({**told, "state": None if told["state"] is None else told["state"].tolist()})
    expected = [read(first, live, batches[-1], None)]
    then = capture_generators()
    first.begin()
    expected.append(read(first, first.made(first.batches), 0, None))

    process(monkeypatch)
    again = opened(KINDS[name])
    restore_generators(begun)
    again.begin()
    saved = json.loads(written)
    state = None if saved["state"] is None else np.array(saved["state"], np.uint8)
    live = again.go_on(again.batches, Position(tuple(saved["batches"]), state, saved["form"]))
    again.num_asked = batches[-1]
    found = [read(again, live, batches[-1], None)]
    if not again.is_python:
        assert capture_generators()["python"] == then["python"]
    restore_generators(then)
    again.begin()
    found.append(read(again, again.made(again.batches), 0, None))
    assert found == expected
    assert any(expected)
