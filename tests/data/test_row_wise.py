"""Which maps of whole batches have a row for each row."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras.src.trainers.data_adapters import array_data_adapter, tf_dataset_adapter

import paceline.data
from paceline.data import compat
from paceline.data.fingerprint import FingerprintLog
from paceline.data.own_rows.array_batches import ArrayDivision
from paceline.data.own_rows.local_batches import divided, local_batches
from paceline.data.own_rows.row_wise import is_row_wise


def _weights() -> tf.Tensor:
    """An eager tensor, which a function captures. As a module's constant, it would start TensorFlow too early."""
    with tf.init_scope():
        return tf.constant([0.5, 2.0, 3.0])


def _numbers(batch: int = 4, *, drops: bool = False) -> Any:
    rows = np.arange(18, dtype=np.int32).reshape(6, 3)
    return tf.data.Dataset.from_tensor_slices(rows).batch(batch, drop_remainder=drops)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.cast(x, tf.float32) / 255.0,
        lambda x: tf.cast(x, tf.float32) * _weights(),
        lambda x: (x, tf.one_hot(x % 3, 3)),
        lambda x: tf.gather(_weights(), x % 3),
        lambda x: tf.gather(_weights(), tf.argmax(x, -1)),
        lambda x: tf.expand_dims(x, 1),
        lambda x: tf.squeeze(tf.expand_dims(x, -1), -1),
        lambda x: tf.reshape(x, [-1, 3, 1]),
        lambda x: tf.where(x > 3, 1, x),
        lambda x: tf.transpose(tf.reshape(x, [-1, 3, 1]), [0, 2, 1]),
        lambda x: tf.concat([x[:, 1:], x[..., :1], x[:, tf.newaxis, 0]], axis=1),
        lambda x: tf.stack([x, x[:, ::-1]], axis=-1),
        lambda x: tf.reshape(tf.pad(x, [[0, 0], [1, 0]]), [tf.shape(x)[0], 2, -1]),
        lambda x: tf.reshape(tf.reshape(x, [-1]) * 2, tf.shape(x)),
        lambda x: tf.reduce_sum(x, axis=1),
        lambda x: tf.matmul(x, tf.constant([[1, 2], [3, 4], [5, 6]])),
        lambda x: x * tf.fill([tf.shape(x)[0], 1], 2),
        lambda x: tf.split(tf.gather(x, [2, 0, 1, 1], axis=1), 2, axis=1),
        lambda x: tf.function(lambda y: tf.clip_by_value(y, 1, 4))(x),
        lambda x: tf.gather(x, tf.argmax(x, 1), axis=1, batch_dims=1),
        lambda x: tf.strings.to_number(tf.strings.regex_replace(tf.strings.as_string(x), "1", "2")),
        lambda x: tf.tile(x[:, tf.newaxis], [1, 2, 1]),
    ],
)
@pytest.mark.parametrize("drops", [False, True])
def test_row_by_row(function: Callable[[Any], Any], drops: bool) -> None:
    _assert_divided(lambda: _numbers(5, drops=drops).map(function), drops=drops)


def _assert_divided(make: Callable[[], Any], *, drops: bool) -> None:
    """That each of two ranks maps its own of five rows only, and that they have the batches of one worker."""
    mapped = make()
    assert is_row_wise(mapped)
    whole = [tf.nest.flatten(batch) for batch in mapped]
    logs = [FingerprintLog(), FingerprintLog()]
    locals_ = [local_batches(make(), rank, 2, log=log) for rank, log in enumerate(logs)]
    specs = [tf.nest.flatten(one.element_spec) for one in locals_]
    assert [[leaf.shape[0] for leaf in spec] for spec in specs] == [
        [rows if drops else None] * len(specs[0]) for rows in (3, 2)
    ]
    ranks = [[tf.nest.flatten(batch) for batch in one] for one in locals_]
    for batch, *parts in zip(whole, *ranks, strict=True):
        for leaf, *own in zip(batch, *parts, strict=True):
            np.testing.assert_array_equal(np.concatenate(own), leaf.numpy())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - tf.reduce_min(x),
        lambda x: tf.reverse(x, [0]),
        lambda x: x[:1],
        lambda x: tf.transpose(x),
        lambda x: tf.reshape(x, [-1, 1]),
        lambda x: tf.expand_dims(x, 0),
        lambda x: tf.argmax(x, 0),
        lambda x: x * x[:, 0],
        lambda x: tf.exp(tf.cast(x, tf.float32)),
        lambda x: (x, tf.constant([1, 2])),
        lambda x: tf.random.shuffle(x),
        lambda x: tf.cast(x, tf.float32) + tf.random.uniform([3]),
        lambda x: tf.cumsum(x),
        lambda x: tf.cast(x, tf.float32) + tf.random.stateless_uniform(tf.shape(x), [1, 2]),
        lambda x: tf.reduce_sum(tf.cast(x, tf.float32), axis=1),
        lambda x: x + tf.shape(x)[0],
        lambda x: x + tf.range(tf.shape(x)[0])[:, tf.newaxis],
        lambda x: tf.map_fn(lambda row: row * 2, x),
        lambda x: tf.cond(tf.reduce_any(x > 3), lambda: x, lambda: -x),
        lambda x: tf.numpy_function(lambda y: y, [x], tf.int32),
        lambda x: x + tf.ensure_shape(tf.numpy_function(lambda: np.int32(1), [], tf.int32, stateful=False), []),
        lambda x: tf.pad(x, [[0, 0], [1, 1]], "REFLECT"),  # TensorFlow refuses to do so without rows
        lambda x: tf.io.decode_raw(tf.strings.as_string(x), tf.uint8),  # without rows it says nothing of their length
    ],
)
def test_not_row_by_row_as_far_as_is_known(function: Callable[[Any], Any]) -> None:
    assert not is_row_wise(_numbers().map(function))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + tf.shape(x)[0] * tf.range(tf.shape(x)[0])[:, tf.newaxis],
        lambda x: x + tf.ones_like(x),
        lambda x: tf.reshape(x, [5, 3]),
        lambda x: (x, tf.ones([5])),
        lambda x: x + tf.range(tf.shape(x)[0])[:, tf.newaxis],
        lambda x: x * 10 // tf.shape(x)[0],
        paceline.data.element_wise(lambda x: x * 2),
    ],
)
def test_a_number_of_rows_that_is_part_of_the_graph_becomes_that_of_own_rows(function: Callable[[Any], Any]) -> None:
    _assert_divided(lambda: _numbers(5, drops=True).map(function), drops=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.reverse(x, [0]),
        lambda x: (x, tf.ones([4])),
        paceline.data.element_wise(lambda x: x - tf.reduce_min(x)),
    ],
)
def test_batches_of_one_length_that_need_all_rows_stay(function: Callable[[Any], Any]) -> None:
    assert not is_row_wise(_numbers(5, drops=True).map(function))


_FEATURES = {"x": tf.io.FixedLenFeature([2], "float32"), "y": tf.io.FixedLenFeature([], "int64", -1)}


def _examples(batch: int, *, drops: bool) -> Any:
    def example(number: int) -> bytes:
        x = tf.train.Feature(float_list=tf.train.FloatList(value=[number, number / 3]))
        y = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
        return tf.train.Example(
            features=tf.train.Features(feature={"x": x, "y": y} if number else {"x": x})
        ).SerializeToString()

    return tf.data.Dataset.from_tensor_slices([example(number) for number in range(13)]).batch(
        batch, drop_remainder=drops
    )


@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_examples_are_parsed_by_the_rank_whose_rows_they_are(size: int, drops: bool) -> None:
    def make() -> Any:
        parsed = _examples(5, drops=drops).map(lambda records: tf.io.parse_example(records, _FEATURES))
        return parsed.map(lambda row: (row["x"] * 2, tf.one_hot(row["y"], 3)), num_parallel_calls=2)

    assert all(map(is_row_wise, (make(), compat.inputs_of(make())[0])))
    ranks = [list(local_batches(make(), rank, size, log=FingerprintLog())) for rank in range(size)]
    for whole, *parts in zip(make(), *ranks, strict=True):
        for leaf, *own in zip(whole, *parts, strict=True):
            np.testing.assert_array_equal(np.concatenate(own), leaf.numpy())


@pytest.mark.parametrize(
    "feature",
    [
        tf.io.VarLenFeature("float32"),
        tf.io.RaggedFeature("float32"),
        tf.io.FixedLenSequenceFeature([], "float32", True),
    ],
)
def test_features_of_any_length_are_parsed_with_the_batch(feature: Any) -> None:
    parsed = _examples(5, drops=False).map(lambda records: tf.io.parse_example(records, {"x": feature})["x"])
    assert not is_row_wise(parsed)


def test_keras_class_weights_are_chosen_row_by_row() -> None:
    """`fit(class_weight=...)` puts such a map behind the script's dataset."""
    rows = tf.data.Dataset.from_tensor_slices((np.arange(6.0), np.array([0, 1, 1, 0, 1, 0]))).batch(4)
    weights = tf_dataset_adapter.make_class_weight_map_fn({0: 1.0, 1: 3.0})
    whole, *ranks = (
        [tf.nest.flatten(batch) for batch in dataset]
        for dataset in (rows.map(weights), *(local_batches(rows.map(weights), rank, 2) for rank in range(2)))
    )
    for batch, *parts in zip(whole, *ranks, strict=True):
        for leaf, *own in zip(batch, *parts, strict=True):
            np.testing.assert_array_equal(np.concatenate(own), leaf.numpy())


@pytest.mark.parametrize("shuffle", [True, False, "batch"])
@pytest.mark.parametrize("rows", [10, 12])
def test_arrays_are_gathered_by_the_rank_whose_rows_they_are(shuffle: Any, rows: int) -> None:
    def build() -> Any:
        tf.random.set_seed(5)
        arrays = {"a": np.arange(rows * 2.0).reshape(rows, 2), "b": np.arange(rows)}
        adapter = array_data_adapter.ArrayDataAdapter(arrays, np.arange(rows), batch_size=4, shuffle=shuffle)
        return adapter.get_tf_dataset()

    assert isinstance(divided(build()), ArrayDivision)
    one, logs = build(), [FingerprintLog() for _ in range(3)]
    locals_ = [local_batches(build(), rank, 3, log=log) for rank, log in enumerate(logs)]
    for _ in range(2):
        for log in logs:
            log.new_iterator()
        whole, *ranks = ([tf.nest.flatten(batch) for batch in dataset] for dataset in (one, *locals_))
        for batch, *parts in zip(whole, *ranks, strict=True):
            for leaf, *own in zip(batch, *parts, strict=True):
                np.testing.assert_array_equal(np.concatenate(own), leaf.numpy(), strict=True)
        assert logs[0].of_batch(0) == logs[1].of_batch(0) == logs[2].of_batch(0) is not None
