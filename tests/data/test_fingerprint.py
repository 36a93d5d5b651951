"""Fingerprints are equal for equal first batches, differ otherwise, and the difference is told."""

import concurrent.futures
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from paceline.data.fingerprint import FingerprintLog, compare, is_sharded
from paceline.data.own_rows.local_batches import local_batches
from paceline.errors import DesynchronizedError
from thread_groups import thread_groups


def _read(
    dataset: tf.data.Dataset, rank: int, *, epochs: int = 1, steps: int | None = None, by_chance: bool = False
) -> FingerprintLog:
    log = FingerprintLog(lambda: by_chance, steps)
    local = local_batches(dataset, rank, 2, log=log)
    for _ in range(epochs):
        log.new_iterator()
        for _ in local.take(6):
            pass
    return log


def _compare(logs: Sequence[FingerprintLog], index: int = 0) -> None:
    group = thread_groups(len(logs))
    with concurrent.futures.ThreadPoolExecutor(len(logs)) as threads:
        calls = [threads.submit(compare, log, index, own) for log, own in zip(logs, group, strict=True)]
        for done in calls:
            done.result(timeout=30)


def _numbers(rows: int = 12) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((np.arange(rows * 2.0).reshape(rows, 2), np.arange(rows))).batch(4)


def test_ranks_note_the_same_for_the_same_data() -> None:
    logs = [_read(_numbers(), rank) for rank in range(2)]
    assert logs[0].of_batch(0) is not None
    assert logs[0].of_batch(0) == logs[1].of_batch(0)
    _compare(logs)


def test_only_the_first_batch_of_each_epoch_is_noted() -> None:
    once = _read(_numbers(), 0)
    assert once.of_batch(0) is not None
    assert once.of_batch(1) is None
    repeated = _read(_numbers().repeat(2), 0, steps=3)
    assert repeated.of_batch(0) == repeated.of_batch(3), "both epochs begin with the same batch"
    assert repeated.of_batch(4) is None


def test_of_iterators_that_begin_alike_the_first_batch_behind_is_noted_too() -> None:
    """What Keras has looked at of a generator begins each iterator over it: a shift shows behind that."""
    logs = []
    for shift in (0, 1):
        log = FingerprintLog(num_repeated=2)
        log.new_iterator()
        shifted = _numbers(8).concatenate(_numbers(24).skip(2 + shift))
        for _ in local_batches(shifted, 0, 2, log=log):
            pass
        logs.append(log)
    _compare(logs)
    with pytest.raises(DesynchronizedError):
        _compare(logs, index=2)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda data: data.skip(1), id="another batch"),
        pytest.param(lambda data: data.map(lambda x, y: (tf.cast(x, tf.float32), y)), id="another dtype"),
        pytest.param(lambda data: data.map(lambda x, y: (tf.reshape(x, [2, -1]), y[:2])), id="another shape"),
        pytest.param(lambda data: data.map(lambda x, y: (x, tf.as_string(y))), id="text"),
    ],
)
def test_other_data_differ(other) -> None:
    assert _read(_numbers(), 0).of_batch(0) != _read(other(_numbers()), 0).of_batch(0)


def test_a_difference_names_the_ranks_and_the_usual_causes() -> None:
    logs = [_read(_numbers(), 0), _read(_numbers(), 1), _read(_numbers().skip(1), 0)]
    with pytest.raises(DesynchronizedError, match=r"between rank 0 and rank\(s\) 2") as caught:
        _compare(logs)
    for cause in ("shuffle", "a dataset that the script divides", "set_random_seed(1)", "parallel map", "stateless"):
        assert cause in str(caught.value)


LABELS = np.array([0, 2, 1, 2])
IMAGES = np.arange(4 * 5 * 5 * 3.0).reshape(4, 5, 5, 3)


def _one_batch(components: Callable[[], Any]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(components())


@pytest.mark.parametrize(
    ("chiefs", "others"),
    [
        pytest.param(lambda: (IMAGES, LABELS), lambda: (IMAGES[:, ::-1], LABELS), id="images"),
        pytest.param(
            lambda: (IMAGES.astype("uint8"), LABELS),
            lambda: (IMAGES[::-1].astype("uint8"), LABELS),
            id="images of bytes",
        ),
        pytest.param(
            lambda: (tf.cast(IMAGES, tf.bfloat16), LABELS),
            lambda: (tf.zeros([4, 5, 5, 3], tf.bfloat16), LABELS),
            id="half",
        ),
        pytest.param(
            lambda: (IMAGES, np.eye(3)[LABELS]), lambda: (IMAGES + 0.5, np.eye(3)[LABELS]), id="labels that are floats"
        ),
        pytest.param(
            lambda: (IMAGES, ["b", "", "a", "b"]),
            lambda: (IMAGES + 0.5, ["b", "", "a", "b"]),
            id="labels that are text",
        ),
        pytest.param(
            lambda: (IMAGES, tf.ragged.constant([[1], [], [2, 1], [1]])),
            lambda: (IMAGES + 0.5, tf.ragged.constant([[1], [], [2, 1], [1]])),
            id="ragged labels",
        ),
    ],
)
def test_the_same_rows_augmented_differently_are_told_about_once(
    chiefs: Callable[[], Any], others: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    logs = [_read(_one_batch(one), rank, by_chance=True) for rank, one in enumerate((chiefs, others, chiefs))]
    with caplog.at_level(logging.WARNING, "paceline"):
        _compare(logs)
        _compare(logs)
    [record] = caplog.records
    assert record.getMessage().startswith("rank(s) 1 read the same labels")
    for said in ("stateless", "sort them"):
        assert said in record.getMessage()


def test_a_shard_in_the_dataset_is_the_first_cause_that_is_named() -> None:
    """It was the third of seven usual causes, although the dataset itself says so."""
    logs = [_read(_one_batch(lambda: (IMAGES, LABELS)), 0), _read(_one_batch(lambda: (IMAGES[::-1], LABELS)), 1)]
    with pytest.raises(DesynchronizedError) as usual:
        _compare(logs)
    logs[1].is_sharded = lambda: True
    with pytest.raises(DesynchronizedError) as sharded:
        _compare(logs)
    assert "rank(s) 1. The dataset calls `.shard(...)`" in str(sharded.value)
    assert "Usual causes" not in str(sharded.value)
    assert len(str(usual.value)) < 5 * 120, "five lines of a terminal"
    assert is_sharded(tf.data.Dataset.range(8).shard(2, 1).map(lambda x: x).batch(2))
    assert not is_sharded(tf.data.Dataset.range(8).batch(2))


def test_where_chance_has_no_part_equal_labels_prove_nothing() -> None:
    """Each host lists its images in an order of its own; labels come class by class, and are shuffled alike."""
    with pytest.raises(DesynchronizedError, match="files that are listed in another order"):
        _compare([_read(_one_batch(lambda: (IMAGES, LABELS)), 0), _read(_one_batch(lambda: (IMAGES[::-1], LABELS)), 1)])


def test_ranks_that_see_their_pipelines_differently_come_to_one_end() -> None:
    logs = [_read(_one_batch(lambda: (IMAGES, LABELS)), 0), _read(_one_batch(lambda: (-IMAGES, LABELS)), 1)]
    logs[1].draws_by_chance = lambda: True
    _compare(logs)


@pytest.mark.parametrize(
    ("chiefs", "others"),
    [
        pytest.param(lambda: (IMAGES,), lambda: (IMAGES + 0.5,), id="nothing but floats"),
        pytest.param(lambda: (IMAGES, LABELS), lambda: (IMAGES[::-1], LABELS[::-1]), id="another order"),
        pytest.param(lambda: (IMAGES, LABELS), lambda: (IMAGES, LABELS[::-1]), id="other labels only"),
        pytest.param(lambda: (IMAGES, np.ones(4)), lambda: (IMAGES[::-1], np.ones(4)), id="labels all alike"),
        pytest.param(
            lambda: (np.arange(4) + 8, IMAGES),
            lambda: (np.arange(4) + 8, IMAGES[::-1]),
            id="numbered after the shuffle",
        ),
        pytest.param(lambda: (IMAGES, LABELS), lambda: (IMAGES[:3, ..., :2], LABELS[:3]), id="other shapes"),
        pytest.param(
            lambda: (tf.sparse.from_dense(np.eye(4)), LABELS[:1].repeat(4)),
            lambda: (tf.sparse.from_dense(2 * np.eye(4)), LABELS[:1].repeat(4)),
            id="sparse positions",
        ),
    ],
)
def test_rows_that_nothing_says_to_be_the_same_stop_the_job(
    chiefs: Callable[[], Any], others: Callable[[], Any]
) -> None:
    with pytest.raises(DesynchronizedError):
        _compare([_read(_one_batch(chiefs), 0, by_chance=True), _read(_one_batch(others), 1, by_chance=True)])


def test_a_rank_that_reads_ahead_is_no_difference() -> None:
    """An iterator given up after `validation_steps` may have noted the next epoch on one rank and not on another.

    Paired by order, all later notes were one off, and a correct job was stopped.
    """
    data = _numbers(rows=48)
    logs = []
    for rank, ahead in ((0, 3), (1, 4)):
        log = FingerprintLog(steps_per_epoch=3)
        local = local_batches(data, rank, 2, log=log)
        for _ in range(3):
            log.new_iterator()
            for _, _ in zip(range(ahead), local, strict=False):
                pass
        logs.append(log)
    _compare(logs)


def test_a_late_difference_is_found_among_many_epochs() -> None:
    logs = [_read(_numbers(), rank, epochs=12) for rank in range(2)]
    _compare(logs)
    for log, data in zip(logs, (_numbers(), _numbers().skip(1)), strict=True):
        log.new_iterator()
        for _ in local_batches(data, 0, 2, log=log):
            pass
    with pytest.raises(DesynchronizedError):
        _compare(logs)
