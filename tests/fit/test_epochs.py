"""What an epoch iterator tells its fingerprints of the data that Keras was given."""

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from paceline.fit import compat
from paceline.fit.epochs import epoch_iterator_class
from paceline.fit.sources.kinds import source_of
from paceline.fit.sources.source import Opened


class Rows(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.zeros((2, 1)), np.zeros(2)


@pytest.mark.parametrize(("workers", "by_chance"), [(1, False), (2, True)])
def test_a_py_dataset_draws_by_chance_if_it_has_workers(workers: int, by_chance: bool) -> None:
    adapter = compat.PyDatasetAdapter(Rows(workers=workers))
    assert source_of(Opened(None, None, adapter, adapter.get_tf_dataset(), None)).draws_by_chance() == by_chance


@pytest.mark.parametrize(("calls", "by_chance"), [(None, False), (2, True)])
def test_a_dataset_draws_by_chance_if_it_draws_in_parallel(calls: int | None, by_chance: bool) -> None:
    dataset = tf.data.Dataset.range(8).map(lambda row: row + tf.random.uniform([], 0, 9, tf.int64), calls)
    assert (
        source_of(Opened(None, None, SimpleNamespace(num_batches=None), dataset.batch(4), None)).draws_by_chance()
        == by_chance
    )


def _pairs(number: int) -> Any:
    return ((np.zeros((2, 1), "float32"), np.zeros((2, 1), "float32")) for _ in range(number))


def _filtered(number: int) -> Any:
    return tf.data.Dataset.range(2 * number).filter(lambda row: row >= 0).batch(2)


@pytest.mark.parametrize(
    ("make_data", "steps", "warns"),
    [
        (_filtered, None, (False, False)),
        (_filtered, 4, (True, True)),
        (_pairs, None, (False, True)),
        (_pairs, 2, (False, True)),
    ],
)
def test_data_of_unknown_length_run_out_where_more_was_asked_for(
    make_data: Callable[[int], Any], steps: int | None, warns: Any
) -> None:
    """Keras says "ran out of data" at the end of each epoch of such data, also where nothing is missing."""
    make = epoch_iterator_class(compat.trainer_module.TFEpochIterator)
    epochs = make(tf.distribute.get_strategy(), x=make_data(3), steps_per_epoch=steps)
    for expected in warns:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with epochs.catch_stop_iteration():
                for _, _, iterator in epochs:
                    next(iterator)
        assert any("ran out of data" in str(one.message) for one in told) == expected
