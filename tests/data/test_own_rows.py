"""A rank's rows are chosen before the maps, and are those of one worker's batches, bit by bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import paceline.data
from paceline.data.batch_rows import rows_of_full_batch
from paceline.data.fingerprint import FingerprintLog
from paceline.data.order.iterator_state import iterator_state, num_shuffles, restore_iterator
from paceline.data.own_rows.division import Whole, form_of, work_of
from paceline.data.own_rows.local_batches import divided, local_batches
from paceline.data.own_rows.own_rows import Division
from paceline.seams.install import install_with_keras

install_with_keras()

Batches = list[list[np.ndarray]]


def _read(dataset: Any) -> Batches:
    return [[leaf.numpy() for leaf in tf.nest.flatten(batch)] for batch in dataset]


def _assert_equal(some: Batches, others: Batches) -> None:
    assert len(some) == len(others)
    for batch, other in zip(some, others, strict=True):
        for leaf, expected in zip(batch, other, strict=True):
            np.testing.assert_array_equal(leaf, expected, strict=True)


def _assert_same_batches(build: Callable[[], Any], size: int, *, epochs: int = 2) -> None:
    """Of each epoch, the ranks' rows in rank order are the batches of the dataset, which is not divided."""
    one = build()
    whole = [_read(one) for _ in range(epochs)]
    locals_ = [local_batches(build(), rank, size, log=FingerprintLog()) for rank in range(size)]
    for dataset, rank in zip(locals_, range(size), strict=True):
        assert dataset.element_spec == local_batches(one, rank, size, division=Whole()).element_spec
    for epoch in range(epochs):
        parts = [_read(dataset) for dataset in locals_]
        together = [
            [np.concatenate(leaves) for leaves in zip(*of_ranks, strict=True)] for of_ranks in zip(*parts, strict=True)
        ]
        _assert_equal(together, whole[epoch])


_BELOW: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda dataset, _: dataset.map(lambda a, b: (a * 3 + 1, tf.strings.join([b, "x"]))),
    "parallel": lambda dataset, _: dataset.map(lambda a, b: (a - 7, b), num_parallel_calls=2),
    "autotuned": lambda dataset, _: dataset.map(lambda a, b: (a, tf.strings.upper(b)), tf.data.AUTOTUNE),
    "table": lambda dataset, table: dataset.map(lambda a, b: (table.lookup(a % 10), b)),
    "stateless": lambda dataset, _: dataset.map(
        lambda a, b: (a + tf.random.stateless_uniform([], [3, a], maxval=99, dtype=tf.int64), b)
    ),
    "ragged": lambda dataset, _: dataset.map(
        lambda a, b: (tf.RaggedTensor.from_row_lengths([a, a], [1, 1]), b),
    ).map(lambda a, b: (tf.reduce_sum(a), b)),
    "shuffle": lambda dataset, _: dataset.shuffle(7),
    "fixed shuffle": lambda dataset, _: dataset.shuffle(5, seed=3, reshuffle_each_iteration=False),
    "repeat": lambda dataset, _: dataset.repeat(2),
    "take": lambda dataset, _: dataset.take(23),
    "skip": lambda dataset, _: dataset.skip(3),
    "prefetch": lambda dataset, _: dataset.prefetch(2),
    "dict": lambda dataset, _: dataset.map(lambda a, b: {"z": a, "a": {"b": b}}).map(lambda d: (d["z"], d["a"]["b"])),
}
_BEHIND: dict[str, Callable[[Any], Any]] = {
    "repeat": lambda dataset: dataset.repeat(2),
    "take": lambda dataset: dataset.take(5),
    "skip": lambda dataset: dataset.skip(1),
    "prefetch": lambda dataset: dataset.prefetch(1),
    "cast": lambda dataset: dataset.map(lambda a, b: (tf.cast(a, tf.float32) / 3.0, b)),
    "shuffle": lambda dataset: dataset.shuffle(3),
}


# An example makes and traces a dataset for each rank, and one more.
@settings(max_examples=settings.default.max_examples // 5)
@given(
    rows=st.integers(0, 60),
    batch=st.integers(1, 9),
    size=st.integers(1, 4),
    below=st.lists(st.sampled_from(sorted(_BELOW)), max_size=5),
    behind=st.lists(st.sampled_from(sorted(_BEHIND)), max_size=3),
    drops=st.booleans(),
)
def test_ranks_together_have_the_batches_of_any_pipeline(
    rows: int, batch: int, size: int, below: list[str], behind: list[str], drops: bool
) -> None:
    keys = tf.range(10, dtype=tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys * 11), -1)

    def build() -> Any:
        tf.random.set_seed(7)
        numbers = tf.range(rows, dtype=tf.int64)
        dataset = tf.data.Dataset.from_tensor_slices((numbers, tf.strings.as_string(numbers)))
        for name in [*below, "map"]:
            dataset = _BELOW[name](dataset, table)
        dataset = dataset.batch(batch, drop_remainder=drops)
        for name in behind:
            dataset = _BEHIND[name](dataset)
        return dataset

    # Who stops in the middle of a repeated shuffle has read ahead, and drawn seeds, as far as threads came.
    _assert_same_batches(build, size, epochs=1 if "take" in [*below, *behind] else 2)


def test_the_second_epoch_of_a_repeated_shuffle_is_one_workers() -> None:
    """TensorFlow makes one stage of shuffle and repeat where no map is between them, which draws other seeds."""

    def build() -> Any:
        tf.random.set_seed(7)
        return tf.data.Dataset.range(23).shuffle(7).map(lambda a: a + 1).repeat(2).batch(3)

    assert isinstance(divided(build()), Division)
    _assert_same_batches(build, 2, epochs=3)


def _in_one_thread(dataset: Any) -> Any:
    """Who stops in the middle has read, and drawn seeds, as far as it came: nothing may read ahead then."""
    options = tf.data.Options()
    options.autotune.enabled = False
    for name in ("map_parallelization", "map_and_batch_fusion", "parallel_batch", "inject_prefetch"):
        setattr(options.experimental_optimization, name, False)
    return dataset.with_options(options)


_Stages = tuple[Any, ...]
_NESTED: dict[str, Callable[..., Any]] = {
    "range": lambda number: tf.data.Dataset.range(number + 3),
    "map": lambda number, rows: rows.map(lambda row: row * 7 + number),
    "same": lambda _, rows: rows.map(lambda row: row),
    "shuffle": lambda number, rows: rows.shuffle(number + 2),
    "fixed shuffle": lambda number, rows: rows.shuffle(number + 1, reshuffle_each_iteration=False),
    "repeat": lambda number, rows: rows.repeat(1 + number % 3),
    "take": lambda number, rows: rows.take(4 * number - 1),
    "skip": lambda number, rows: rows.skip(number // 3),
    "options": lambda _, rows: rows.with_options(tf.data.Options()),
    "concatenate": lambda _, rows, others: rows.concatenate(others),
    "again": lambda _, rows: rows.concatenate(rows),
    "zip": lambda _, rows, others: tf.data.Dataset.zip(rows, others).map(lambda row, other: row - other),
    "interleave": lambda number, rows: rows.interleave(
        lambda row: tf.data.Dataset.range(2).map(lambda inner: row + inner), cycle_length=number + 1
    ),
}
_OF_ONE = ["map", "same", "shuffle", "shuffle", "fixed shuffle", "repeat", "repeat", "take", "skip", "options", "again"]
_numbers = st.integers(0, 7)


def _made(stages: _Stages) -> Any:
    name, number, *sources = stages
    return _NESTED[name](number, *map(_made, sources))


@settings(max_examples=settings.default.max_examples // 4)
@given(
    rows=st.recursive(
        st.tuples(st.just("range"), _numbers),
        lambda below: st.one_of(
            st.tuples(st.sampled_from([*_OF_ONE, "interleave"]), _numbers, below),
            st.tuples(st.sampled_from(_OF_ONE), _numbers, st.tuples(st.sampled_from(_OF_ONE), _numbers, below)),
            st.tuples(st.sampled_from(["concatenate", "zip"]), _numbers, below, below),
        ),
        max_leaves=6,
    ),
    batch=st.integers(1, 4),
    drops=st.booleans(),
    behind=st.lists(st.tuples(st.sampled_from([one for one in _OF_ONE if one != "again"]), _numbers), max_size=5),
    size=st.integers(2, 3),
    epochs=st.integers(1, 3),
)
def test_ranks_together_have_the_batches_of_any_nesting(
    rows: _Stages, batch: int, drops: bool, behind: list[tuple[str, int]], size: int, epochs: int
) -> None:
    def build() -> Any:
        tf.random.set_seed(7)
        dataset = _made(rows).map(lambda row: row + 1).batch(batch, drop_remainder=drops)
        for name, number in behind:
            dataset = _NESTED[name](number, dataset)
        return _in_one_thread(dataset.take(300))

    _assert_same_batches(build, size, epochs=epochs)


def _checked(row: Any) -> Any:
    tf.debugging.assert_non_negative(row)
    return row


def _with_captured(rows: Any, captured: Any) -> Any:
    return rows.map(lambda row: (captured + 1, row)[1])


_BETWEEN: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda rows: rows,
    "take": lambda rows: rows.take(-1),
    "skip": lambda rows: rows.skip(0),
    "repeat": lambda rows: rows.repeat(1),
    "same": lambda rows: rows.map(lambda row: row),
    "same in parallel": lambda rows: rows.map(lambda row: {"a": row}, 2).take(-1).map(lambda row: row["a"], 2),
    "unused": lambda rows: rows.map(lambda row: (row + 1, row)[1]),
    "checked": lambda rows: rows.map(_checked),
    "captured": lambda rows: _with_captured(rows, tf.range(3)),
    "map": lambda rows: rows.take(-1).map(lambda row: row + 1),
    "prefetch": lambda rows: rows.prefetch(1),
    "options": lambda rows: rows.with_options(tf.data.Options()),
}


@pytest.mark.parametrize("between", _BETWEEN)
def test_a_repeated_shuffle_draws_as_in_one_worker_whatever_is_between(between: str) -> None:
    """TensorFlow leaves out stages that change nothing before it makes one stage of shuffle and repeat."""

    def build() -> Any:
        tf.random.set_seed(7)
        rows = _BETWEEN[between](tf.data.Dataset.range(9).map(lambda row: row * 3).shuffle(9))
        return rows.repeat(2).map(lambda row: row * 2).batch(2)

    assert isinstance(divided(build()), Division)
    _assert_same_batches(build, 2)


def test_a_prefetch_of_nothing_between_shuffle_and_repeat_stays() -> None:
    """TensorFlow 2.17 leaves it out, and makes one stage of the two; 2.21 does not."""

    def build() -> Any:
        tf.random.set_seed(7)
        rows = tf.data.Dataset.range(9).map(lambda row: row * 3).shuffle(9).prefetch(0)
        return rows.repeat(2).map(lambda row: row * 2).batch(2)

    _assert_same_batches(build, 2)


@pytest.mark.parametrize("repeats", [2, 3])
def test_the_second_epoch_of_a_shuffle_below_several_repeats_is_one_workers(repeats: int) -> None:
    """A finite repeat makes one more iterator, which draws seeds, where it ends: a take of all rows must ask for it."""

    def build() -> Any:
        tf.random.set_seed(7)
        rows = tf.data.Dataset.range(5).shuffle(7).map(lambda row: row + 1)
        for _ in range(repeats - 1):
            rows = rows.repeat(2)
        return rows.batch(2).map(lambda batch: batch * 2).repeat(2)

    assert isinstance(divided(build()), Division)
    _assert_same_batches(build, 2)


def test_maps_before_a_shuffle_run_on_own_rows() -> None:
    """Orders go on over epochs, other readers of the dataset, and repeats that TensorFlow fuses with the shuffle."""

    def build() -> Any:
        tf.random.set_seed(7)
        rows = tf.data.Dataset.range(23).map(lambda a: a + 1).shuffle(5).map(lambda a: a * 2).shuffle(30)
        return rows.repeat(2).batch(3).map(lambda a: a - 1).shuffle(4).map(lambda a: a * 3).repeat(2)

    assert divided(build()).mapped == ["<lambda>"] * 4
    _assert_same_batches(build, 3, epochs=3)

    plain, script = build(), build()
    own = local_batches(script, 0, 1, log=FingerprintLog(), division=divided(script))
    for dataset in (own, script, own, own, script):
        _assert_equal(_read(dataset), _read(plain))


def test_maps_in_a_zip_run_on_own_rows(tmp_path: Path) -> None:
    """As `keras.utils.image_dataset_from_directory` without a shuffle has it."""
    paths = []
    for number in range(7):
        paths.append(str(tmp_path / f"{number}"))
        Path(paths[-1]).write_bytes(bytes([number] * 4))

    def build() -> Any:
        images = tf.data.Dataset.from_tensor_slices(paths).map(
            lambda path: tf.io.decode_raw(tf.io.read_file(path), tf.uint8), num_parallel_calls=2
        )
        labels = tf.data.Dataset.range(7).map(lambda label: tf.one_hot(label, 7))
        both = tf.data.Dataset.zip((images, labels)).map(lambda image, label: (tf.reshape(image, [2, 2]), label))
        return both.batch(4).prefetch(tf.data.AUTOTUNE)

    assert divided(build()).mapped == ["<lambda>"] * 3
    _assert_same_batches(build, 3)


@pytest.mark.parametrize("below_a_repeat", [False, True])
def test_each_row_is_mapped_once(below_a_repeat: bool) -> None:
    seen: list[int] = []

    def count(number: Any) -> Any:
        return tf.numpy_function(lambda one: (seen.append(int(one)), one)[1], [number], tf.int64, stateful=False)

    def fixed(number: Any) -> Any:
        return tf.ensure_shape(count(number), [])

    def build() -> Any:
        dataset = tf.data.Dataset.range(200).shuffle(50, seed=1).map(paceline.data.element_wise(fixed)).batch(8)
        return dataset.repeat(2) if below_a_repeat else dataset

    for rank in range(3):
        _read(local_batches(build(), rank, 3))
    epochs = 2 if below_a_repeat else 1
    assert set(seen) == set(range(200))
    assert len(seen) <= 1.05 * 200 * epochs


@pytest.mark.parametrize("behind", ["", "repeat"])
def test_an_iterator_comes_back_to_each_position(behind: str) -> None:
    def build() -> Any:
        tf.random.set_seed(7)
        rows = 17 if behind else 59
        dataset = tf.data.Dataset.range(rows).shuffle(5).map(lambda a: a * 3, num_parallel_calls=2).batch(4)
        dataset = dataset.repeat(3) if behind else dataset
        return local_batches(dataset, 1, 2)

    iterator, states, batches = iter(build()), [], []
    for batch in iterator:
        batches.append(batch.numpy())
        states.append(iterator_state(iterator))
    most, num_restored, other = max(map(num_shuffles, states)), 0, build()
    for position, state in enumerate(states, 1):
        if num_shuffles(state) < most:
            continue  # a run that stops here reads the data again (`TfData`)
        num_restored += 1
        again = iter(other)
        restore_iterator(again, state)
        np.testing.assert_equal([batch.numpy() for batch in again], batches[position:])
    assert num_restored, "no position but those near the end, up to which all has been read ahead, has a state"


def _random(number: Any) -> Any:
    return number + tf.random.uniform([], maxval=9, dtype=tf.int64)


def _calls_python(number: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(lambda one: one, [number], tf.int64), [])


def _whole_batches(batch: Any) -> Any:
    return batch - tf.reduce_min(batch)


def _plus_one(number: Any) -> Any:
    return number + 1


def _inside(number: Any) -> Any:
    return tf.data.Dataset.from_tensors(number).map(_plus_one)


def _zero(*_: Any) -> Any:
    return tf.constant(0, tf.int64)


def _one(_: Any) -> Any:
    return tf.constant(1, tf.int32)


def _batched(_: Any, rows: Any) -> Any:
    return rows.batch(4)


def _counted(dataset: Any) -> Any:
    """Two maps; the second one reads how often the first one was called."""
    number = tf.Variable(0, dtype=tf.int64)

    def count(row: Any) -> Any:
        number.assign_add(1)
        return row

    def of_count(row: Any) -> Any:
        return row * 100 + number.read_value()

    return dataset.map(count).map(of_count)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda rows: rows.map(_random).batch(4), "map `_random` runs on all rows on every rank, as it draws random"),
        # Each rank may draw other integers, which are no sign of other rows.
        (lambda rows: rows.map(_random, 2).map(_plus_one).batch(4), "map `_random` runs on all rows on every rank"),
        (lambda rows: rows.map(_calls_python).batch(4), "paceline.data.element_wise(function)"),
        (lambda rows: rows.map(_plus_one).batch(4).map(_whole_batches), "`_whole_batches` takes whole batches"),
        # Moved before the batch, as others are told to, these would stay on all rows.
        (lambda rows: rows.batch(4).map(_random), "before .batch() it would run on all rows, too, as it draws random"),
        (lambda rows: rows.batch(4).map(_calls_python), "too, as it calls Python: with paceline.data.element_wise"),
        (lambda rows: _counted(rows).batch(4), "`of_count` runs on all rows on every rank, as a stage before changes"),
        (
            lambda rows: rows.map(_plus_one).filter(lambda row: row > 2).batch(4),
            "`_plus_one` runs on all rows on every",
        ),
        (lambda rows: rows.map(_random).filter(lambda row: row > 2).batch(4), "as it draws random numbers"),
        (lambda rows: rows.filter(lambda row: row > 2).batch(4), ""),
        (lambda rows: rows.map(_plus_one).concatenate(rows).batch(4), "map `_plus_one` runs on all rows on every rank"),
        (
            lambda rows: tf.data.Dataset.sample_from_datasets([rows.map(_plus_one)] * 2).batch(4),
            "as the stage `sample_from_datasets` behind it",
        ),
        # Its own map, which chooses, is no map of the script.
        (lambda rows: tf.data.Dataset.sample_from_datasets([rows, rows]).batch(4), ""),
        (
            lambda rows: tf.data.Dataset.choose_from_datasets([rows.map(_plus_one)] * 2, rows).batch(4),
            "as the stage `choose_from_datasets` behind it",
        ),
        (
            lambda rows: rows.map(_plus_one).ignore_errors().batch(4),
            "as the stage `ignore_errors` behind it",
        ),
        (lambda rows: rows.map(_plus_one).snapshot("/nowhere").batch(4), "map `_plus_one` runs on all rows"),
        (lambda rows: rows.map(lambda row: [row]).map(_plus_one).rejection_resample(_zero, [1.0]).batch(4), "runs on"),
        (lambda rows: rows.map(_plus_one).group_by_window(_zero, _batched, 4).batch(4), "`_plus_one` runs on all rows"),
        (lambda rows: rows.map(_plus_one).bucket_by_sequence_length(_one, [2], [4, 4]).batch(4), "`_plus_one` runs on"),
        (lambda rows: rows.interleave(_inside).batch(4), "map `_plus_one` runs on all rows on every rank, as it is in"),
        (lambda rows: rows.interleave(_inside).cache().shuffle(9).batch(4), "map `_plus_one` runs on all rows on"),
        (
            lambda rows: rows.interleave(_inside, num_parallel_calls=2).prefetch(1).batch(4),
            "datasets (interleave)",
        ),
        (lambda rows: rows.map(_plus_one).cache().batch(4), "as .cache() behind it keeps its rows"),
        (lambda rows: rows.cache().batch(4), ""),
        (lambda rows: rows.map(_plus_one).batch(4).filter(lambda row: row[0] > 2), "as .filter() behind it needs"),
        (
            lambda rows: rows.map(_plus_one).batch(4).unbatch().batch(2),
            "as the stage `unbatch` behind it takes what it returns",
        ),
        (lambda rows: rows.map(tf.range).padded_batch(4), "as .padded_batch() pads to the longest row of a batch"),
        (lambda rows: rows.map(tf.range).ragged_batch(4), "as its rows are ragged or sparse"),
        (lambda rows: rows.batch(4), ""),
        (lambda rows: rows.map(lambda row: tf.repeat(row, 4)).map(_whole_batches), ""),
        (lambda rows: rows.map(lambda row: {"x": row}).batch(4), ""),
    ],
)
def test_what_stays_on_all_rows_is_said(build: Callable[[Any], Any], said: str) -> None:
    division = divided(build(tf.data.Dataset.range(20)))
    assert isinstance(division, Whole)
    assert said in division.stays
    assert bool(said) == bool(division.stays)
    assert work_of(division).startswith("every rank reads all data and computes its rows of each batch")


def test_what_is_mapped_by_its_own_rank_is_said() -> None:
    division = divided(tf.data.Dataset.range(20).map(_random).map(_plus_one).batch(4))
    assert work_of(division).startswith("every rank reads all data, and maps (_plus_one) and computes its rows")
    assert "`_random`" in work_of(division)


def test_states_fit_iterators_of_the_same_form_only() -> None:
    dataset = tf.data.Dataset.range(20).map(_plus_one).batch(4)
    ranks = [local_batches(dataset, 0, 2), local_batches(dataset, 0, 2, division=Whole())]
    assert form_of(ranks[0].map(lambda row: row)) == form_of(ranks[0])
    assert form_of(ranks[0]) != form_of(ranks[1])


def test_ranks_whose_maps_differ_have_other_fingerprints() -> None:
    logs = [FingerprintLog() for _ in range(3)]
    for log, factor in zip(logs, (2, 2, 3), strict=True):
        log.new_iterator()
        dataset = tf.data.Dataset.range(3, 20).map(lambda row, factor=factor: row * factor).batch(4)
        _read(local_batches(dataset, 1, 2, log=log))
    assert logs[0].of_batch(0) == logs[1].of_batch(0) is not None
    assert logs[0].of_batch(0) != logs[2].of_batch(0)


def test_a_shape_that_is_not_known_before_the_maps_leaves_them_on_all_rows() -> None:
    rows = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1, 2], [3], [4, 5, 6]]))
    assert isinstance(divided(rows.map(lambda row: row[:1]).batch(2)), Whole)


def test_rows_without_numbers_stay_whole() -> None:
    """TensorFlow's `unbatch` ends the process at them."""
    rows = tf.data.Dataset.from_tensor_slices((np.zeros([5, 0]), np.arange(5.0)))
    _assert_same_batches(lambda: rows.map(lambda none, one: (none, one + 1)).batch(2), 2)


def test_workers_may_have_their_files_in_directories_of_their_own(tmp_path: Path) -> None:
    logs = [FingerprintLog() for _ in range(3)]
    for log, directory, names in zip(logs, ("a", "long", "c"), ("012", "012", "021"), strict=True):
        (tmp_path / directory / "x").mkdir(parents=True)
        paths = [str(tmp_path / directory / "x" / name) for name in names]
        for path in paths:
            Path(path).write_bytes(b"same")
        log.new_iterator()
        _read(local_batches(tf.data.Dataset.from_tensor_slices(paths).map(tf.io.read_file).batch(3), 1, 2, log=log))
    assert logs[0].of_batch(0) == logs[1].of_batch(0) is not None
    assert logs[0].of_batch(0) != logs[2].of_batch(0)


def test_components_may_be_none() -> None:
    rows = tf.data.Dataset.range(7)
    before = rows.map(lambda row: (row, None)).batch(3)
    behind = rows.batch(3).map(lambda batch: {"b": None, "a": batch * 2, "c": (None, batch)})
    for dataset, kind in ((before, Whole), (behind, Division)):
        assert isinstance(divided(dataset), kind)
        ranks = [list(local_batches(dataset, rank, 2, log=FingerprintLog())) for rank in range(2)]
        for whole, *parts in zip(dataset, *ranks, strict=True):
            of_parts = tf.nest.map_structure(lambda *own: None if own[0] is None else np.concatenate(own), *parts)
            tf.nest.map_structure(np.testing.assert_array_equal, of_parts, whole)


def test_a_copy_to_a_device_is_looked_through() -> None:
    rows = tf.data.Dataset.range(10).map(_plus_one).batch(4)
    on_device = rows.apply(tf.data.experimental.prefetch_to_device("/cpu:0"))
    assert isinstance(divided(on_device), Division)
    assert [list(map(int, batch)) for batch in local_batches(on_device, 1, 2)] == [[3, 4], [7, 8], [10]]


@pytest.mark.parametrize(
    ("build", "rows"),
    [
        (lambda data: data.batch(4).map(_plus_one), 4),
        (lambda data: data.batch(4).map(_plus_one).repeat().prefetch(1), 4),
        (lambda data: data.batch(4).map(lambda batch: tf.repeat(batch, 2)), None),
    ],
)
def test_batches_behind_row_wise_maps_have_a_known_size(build: Callable[[Any], Any], rows: int | None) -> None:
    assert rows_of_full_batch(build(tf.data.Dataset.range(20))) == rows
