"""What a profile says of a `PyDataset` or a generator is what its items show."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

import paceline.data
from paceline.data.timing import profiling
from paceline.errors import ConfigurationError
from paceline.plan.data_profile import ItemCost

SLEEP_SECONDS = 0.03


class Waiting(keras.utils.PyDataset):  # type: ignore[misc]  # Keras is untyped
    """Eight rows an item."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        time.sleep(SLEEP_SECONDS)
        return np.full((8, 4), index, np.float32), np.zeros((8, 1), np.float32)


class Computing(Waiting):
    """Keeps a core busy, and draws."""

    def __getitem__(self, index: int) -> Any:
        return np.sort(np.random.rand(8, 50_000), kind="heapsort"), sum(range(100_000)) + np.zeros((8, 1))


def items_of(profile: Any) -> ItemCost:
    assert isinstance(profile.items, ItemCost)
    return profile.items


def test_items_that_wait_are_made_by_more_threads() -> None:
    """A `PyDataset` was refused."""
    given = Waiting()
    profile = paceline.data.profile(given, seconds=0.2)
    [stage] = profile.stages
    assert stage.name == "PyDataset Waiting"
    assert stage.waits is not None
    assert stage.waits > 0.5
    items = items_of(profile)
    assert items.seconds >= SLEEP_SECONDS
    assert (items.rows, items.size_bytes, items.share_of_step) == (8, 8 * 5 * 4, None)
    assert profile.rows_per_second == pytest.approx(8 / items.seconds)
    assert [one.change for one in profile.advice] == ["workers=8 in the PyDataset", "workers=2 in the PyDataset"]
    assert profile.advice[1].gain > 1.2
    assert given.workers == 1  # the script's own object stays as it is
    text = str(profile)
    assert "`PyDataset Waiting` mostly waits" in text
    assert "on one rank of a host" in text
    assert "with `workers=2` each makes every n-th" in text


def test_items_that_compute_are_said_to_need_processes() -> None:
    profile = paceline.data.profile(Computing(workers=2), seconds=0.1)
    assert profile.stages[0].waits is not None
    assert profile.stages[0].waits < 0.5
    text = str(profile)
    assert "computes in Python, of which one thread of a process runs at a time" in text
    assert "Items draw from the random generators" in text
    assert "on one rank of a host" in text  # `workers=2` does not share out items that draw
    assert "No change was tried." in text


def test_items_of_workers_are_shared_out() -> None:
    profile = paceline.data.profile(Waiting(workers=8), seconds=0.1)
    assert profile.stages[0].on_own_rows
    assert profile.rows_per_second > 8 / SLEEP_SECONDS  # by eight threads


def test_a_generator_is_read_for_a_while() -> None:
    """A generator was refused."""

    def batches() -> Iterator[Any]:
        for number in itertools.count():
            time.sleep(SLEEP_SECONDS)
            yield np.full((8, 4), number)

    generator = batches()
    profile = paceline.data.profile(generator, seconds=0.2)
    assert profile.stages[0].name == "generator batches"
    assert not profile.advice
    gone = int(next(generator)[0, 0])
    assert f"At least {gone} items have been read of the generator, and are gone" in str(profile)
    assert gone <= 2 + 0.2 / SLEEP_SECONDS


def test_what_training_waits_for_is_measured_in_fit() -> None:
    trained = []

    def speed(data: Any) -> float:
        first = next(iter(data)) if isinstance(data, Iterator) else data[0]
        assert first[0].shape == (8, 4)
        trained.append(data)
        return 30.0 if isinstance(data, Iterator) else 10.0 * data.workers  # items in memory; or made

    profile = profiling.profile_for(Waiting(), speed, seconds=0.1)
    assert items_of(profile).share_of_step == pytest.approx(2 / 3)
    assert [one.gain_in_fit for one in profile.advice] == [8, 2]
    assert "Of a step of `fit` with this model, 67% is waiting for items" in str(profile)

    def reads_on(data: Iterator[Any]) -> float:
        return float(len([*itertools.islice(data, 20)]))

    short = profiling.profile_for((Waiting()[0] for _ in range(5)), reads_on, 0.01)
    assert items_of(short).share_of_step is None  # the generator had ended


def test_what_has_no_items_is_refused() -> None:
    for data, said in ((iter(()), "no item"), (iter([np.zeros(2)]), "one item only"), (iter([1, 2, 3, 4]), "no rows")):
        with pytest.raises(ConfigurationError, match=said):
            paceline.data.profile(data, seconds=0.01)
