"""What a profile says of a pipeline is what reading the pipeline shows."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import paceline.data
from paceline.data.compat import unbounded_threads
from paceline.data.indexed.index_source import mark_as_source
from paceline.data.own_rows.division import work_of
from paceline.data.own_rows.local_batches import divided
from paceline.data.timing import profiling
from paceline.data.timing.rebuilding import UnknownStageError, mapped_again, with_change
from paceline.data.timing.stage_waits import waits_of
from paceline.data.workers.served_batches import ServedBatches
from paceline.errors import ConfigurationError

SLEEP_SECONDS = 0.02
"""Of each row: the work that is measured. Far above what a call of Python costs on a machine with other work."""


def _sleep(number: Any) -> Any:
    time.sleep(SLEEP_SECONDS)
    return number


def slow(number: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(_sleep, [number], tf.int64), [])


def counting(number: Any) -> Any:
    return slow(number)


def counting_up(number: Any) -> Any:
    return number >= 0


def sorted_numbers(number: Any) -> Any:
    numbers = tf.random.stateless_uniform([100_000], [number, 1])
    return tf.reduce_sum(tf.sort(numbers))


def test_the_slow_map_is_found_and_a_parallel_one_tried() -> None:
    rows = tf.data.Dataset.range(10_000).shuffle(10).map(paceline.data.element_wise(slow))
    profile = paceline.data.profile(rows.map(lambda number: number + 1).batch(4).prefetch(1), seconds=0.3)
    stages = {one.name: one for one in profile.stages}
    assert list(stages) == ["range", "shuffle", "map slow", "map <lambda>", "batch", "prefetch"]
    assert stages["map slow"].share > 0.7
    assert stages["map slow"].seconds_per_row > SLEEP_SECONDS
    assert [one.on_own_rows for one in profile.stages] == [False, False, True, True, False, False]
    assert profile.rows_per_second < 1 / SLEEP_SECONDS
    [advice] = profile.advice
    is_unbounded = bool(unbounded_threads())  # not in old versions of TensorFlow
    changed = "num_parallel_calls=16, use_unbounded_threadpool=True" if is_unbounded else "num_parallel_calls=16"
    assert advice.change == f"{changed} on `slow`"
    assert advice.gain > (3 if is_unbounded else 1.2)  # one thread a core, as with AUTOTUNE, gives 2 on two cores
    assert profile.gain_of_two_workers > 1.3
    text = str(profile)
    assert "one at a time" in text
    assert "`map slow` mostly waits" in text
    assert f"{changed} on `slow`: {advice.gain:.1f} times as fast" in text


def test_waiting_is_told_from_computing() -> None:
    """Both were the time that threads are in a stage, and the advice was that for computing."""
    rows = tf.data.Dataset.range(1_000_000)
    computing = [rows.map(sorted_numbers, calls) for calls in (None, 8)]  # more calls at a time than cores, too
    generated = tf.data.Dataset.from_generator(itertools.count, output_signature=tf.TensorSpec([], tf.int64))
    for dataset, number in ((computing[0], 20), (computing[1], 20), (generated, 2000)):
        share = waits_of(dataset, number, is_first=True)
        assert share is not None
        assert share < 0.5
    waiting = rows.interleave(lambda row: tf.data.Dataset.from_tensors(row).map(slow), 2, num_parallel_calls=2)
    for dataset in (rows.map(slow, 2), waiting, rows.filter(lambda row: slow(row) >= 0)):
        share = waits_of(dataset, 10, is_first=True)
        assert share is not None
        assert share > 0.5
    assert waits_of(rows.map(slow).batch(2), 1, is_first=False) == 0  # what is before is no part of a stage
    assert waits_of(rows.map(slow).filter(counting_up), 1, is_first=False) is None


def test_a_stage_that_computes_is_said_to() -> None:
    dataset = tf.data.Dataset.range(10_000).map(sorted_numbers).batch(4)
    profile = paceline.data.profile(dataset, seconds=0.1)
    assert "`map sorted_numbers` computes: more cores help" in str(profile)
    assert not any("unbounded" in one.change for one in profile.advice)


@pytest.mark.proof
def test_a_cache_is_tried_where_the_rows_are_always_the_same() -> None:
    dataset = tf.data.Dataset.range(64).map(sorted_numbers, num_parallel_calls=2).shuffle(64).batch(8)
    profile = paceline.data.profile(dataset, seconds=0.2)
    [advice] = profile.advice
    assert advice.change == ".cache() behind `sorted_numbers` (0.0 MB), from the second epoch on"
    assert advice.gain > 2
    drawn = tf.data.Dataset.range(64).map(lambda number: tf.random.uniform([9]) + sorted_numbers(number), 2).batch(8)
    assert not paceline.data.profile(drawn, seconds=0.1).advice


def test_a_source_by_index_is_one_stage_and_read_for_own_rows() -> None:
    dataset = paceline.data.rows(range(10_000), 8, shuffle=True).map(lambda number: number + 1).prefetch(1)
    profile = paceline.data.profile(dataset, seconds=0.05)
    assert [one.name for one in profile.stages] == ["rows", "map <lambda>", "prefetch"]
    assert profile.stages[0].seconds_per_row > 0
    assert all(one.on_own_rows for one in profile.stages)


def test_stages_have_the_names_that_a_script_calls() -> None:
    """They had the names of TensorFlow's classes (`DirectedInterleave`), with stages that no script has written."""

    rows, spec = tf.data.Dataset.range(1_000_000), tf.TensorSpec([], tf.int64)
    generated = tf.data.Dataset.from_generator(itertools.count, output_signature=spec).take(100_000)
    sampled = tf.data.Dataset.sample_from_datasets([rows.shuffle(2), generated])
    chosen = tf.data.Dataset.choose_from_datasets([sampled, rows.filter(counting_up)], rows.take(2).repeat())
    dataset = chosen.interleave(tf.data.Dataset.from_tensors, num_parallel_calls=2).enumerate()
    dataset = dataset.map(lambda number, row: row, num_parallel_calls=2).batch(2, num_parallel_calls=2)
    names = [one.name for one in paceline.data.profile(dataset, seconds=0.05).stages]
    assert names == [
        *("range", "shuffle", "from_generator", "take", "sample_from_datasets"),
        *("range", "filter counting_up", "choose_from_datasets", "interleave from_tensors", "enumerate"),
        *("map <lambda>", "batch"),
    ]


def test_batches_of_a_data_worker_are_named() -> None:
    """They were read "by index (data worker)", or every rank read "all data worker", by what was said."""
    source = ServedBatches(number=0, given=tf.data.Dataset.range(8).batch(2), target="", compression=None)
    served = mark_as_source(tf.data.Dataset.range(8).batch(2), source)
    assert work_of(divided(served)) == (
        "each rank takes its rows of each batch from the data worker, which makes the batches"
    )
    assert "every rank reads all batches of the data worker, as the stage `cache` is" in work_of(
        divided(served.cache())
    )


def test_what_stays_on_all_rows_is_said() -> None:
    dataset = tf.data.Dataset.range(64).map(counting).batch(8)
    profile = paceline.data.profile(dataset, seconds=0.2)
    assert "Map `counting` runs on all rows on every rank" in str(profile)
    assert not any("cache" in advice.change for advice in profile.advice)
    assert profile.gain_of_two_workers < 1.5


@pytest.mark.proof
def test_the_gain_in_fit_is_told_where_there_is_a_fit() -> None:
    dataset = tf.data.Dataset.range(64).map(sorted_numbers, num_parallel_calls=2).batch(8)
    trained = []

    def speed(dataset: Any) -> float:
        trained.append(dataset)
        return 3.0 if len(trained) % 2 else 1.5  # with the change, and without

    profile = profiling.profile_for(dataset, speed, seconds=0.1)
    [advice] = profile.advice
    assert advice.gain_in_fit == 2
    assert {one.element_spec for one in trained} == {dataset.element_spec}
    assert f"from the second epoch on: 2.0 times as fast (the input alone: {advice.gain:.1f})" in str(profile)
    assert "of the input alone (`fit`" not in str(profile)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: np.zeros(3), "Received ndarray.* a keras.utils.PyDataset or a generator"),
        (lambda: tf.data.Dataset.range(3), "has no batches"),
        (lambda: tf.data.Dataset.range(0).batch(2), "has no row"),
    ],
)
def test_what_cannot_be_measured_is_refused(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        paceline.data.profile(build(), seconds=0.05)


def test_stages_that_were_not_seen_running_are_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_LOOKING_SECONDS", 1000)  # longer than it takes to read all
    with pytest.raises(ConfigurationError, match="read too soon"):
        paceline.data.profile(tf.data.Dataset.range(4).batch(2), seconds=0.05)


def test_few_rows_are_called_few() -> None:
    few = tf.data.Dataset.range(8).map(slow).shuffle(8).batch(4)
    assert "% of an epoch passes before its first batch" in str(paceline.data.profile(few, seconds=2.0))
    many = tf.data.Dataset.range(10_000).map(slow).batch(4)
    assert "before its first batch" not in str(paceline.data.profile(many, seconds=0.1))


def test_a_change_keeps_everything_behind_the_stage() -> None:
    def build() -> tuple[Any, Any]:
        tf.random.set_seed(3)
        stage = tf.data.Dataset.range(20).map(lambda number: {"a": number, "b": [number, 1]})
        dataset = stage.cache().map(lambda row: (row["b"], row["a"])).take(9).skip(1).repeat(2).batch(4).prefetch(2)
        return stage, tf.data.Dataset.zip((dataset, tf.data.Dataset.range(9)))

    stage, dataset = build()
    changed = with_change(dataset, stage, lambda rows: mapped_again(stage, {"num_parallel_calls": 2}, rows))
    assert changed.element_spec == dataset.element_spec
    for one, other in zip(dataset, changed, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)
    unknown = stage.filter(lambda row: row["a"] > 2)
    with pytest.raises(UnknownStageError, match="Filter"):
        with_change(unknown, stage, lambda rows: rows)
