"""What an epoch iterator tells its fingerprints of the data that Keras was given."""

from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from paceline.fit import compat
from paceline.fit.epochs import _Distributor


class Rows(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.zeros((2, 1)), np.zeros(2)


@pytest.mark.parametrize(("workers", "by_chance"), [(1, False), (2, True)])
def test_a_py_dataset_draws_by_chance_if_it_has_workers(workers: int, by_chance: bool) -> None:
    adapter = compat.PyDatasetAdapter(Rows(workers=workers))
    iterator = SimpleNamespace(data_adapter=adapter)
    assert _Distributor(None, iterator)._draws_by_chance(adapter.get_tf_dataset()) == by_chance


@pytest.mark.parametrize(("calls", "by_chance"), [(None, False), (2, True)])
def test_a_dataset_draws_by_chance_if_it_draws_in_parallel(calls: int | None, by_chance: bool) -> None:
    dataset = tf.data.Dataset.range(8).map(lambda row: row + tf.random.uniform([], 0, 9, tf.int64), calls)
    iterator = SimpleNamespace(data_adapter=None)
    assert _Distributor(None, iterator)._draws_by_chance(dataset.batch(4)) == by_chance
