"""A parser of batches returns, bit by bit, what `parse` returns for each record."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from paceline.data.indexed.row_parsers import batch_parser


def example(number: int) -> bytes:
    generator = np.random.default_rng(number)
    image = generator.integers(0, 255, [4, 5, 3], dtype=np.uint8).tobytes()
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "box": tf.train.Feature(float_list=tf.train.FloatList(value=generator.normal(size=4))),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 7])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def features_of(record: Any) -> Any:
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "box": tf.io.FixedLenFeature([2, 2], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "weight": tf.io.FixedLenFeature([], tf.float32, 0.5),
    }
    return tf.io.parse_single_example(record, spec)


def pixels(record: Any) -> Any:
    row = features_of(record)
    image = tf.cast(tf.reshape(tf.io.decode_raw(row["image"], tf.uint8), [4, 5, 3]), tf.float32) / 255.0
    return {"image": image, "corner": image[1:3, ::2]}, tf.one_hot(row["label"], 7), row["weight"] * 3


def mixed(record: Any, seed: Any) -> Any:
    row = features_of(record)
    box = row["box"]
    table = tf.constant([[1.5, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12], [13, 14]])
    rows = tf.concat([box, tf.gather(table, row["label"])[tf.newaxis], tf.stack([box[0] / 3, box[1]])], 0)
    return tf.where(rows > 0, rows, tf.transpose(box)[:1] - 1), tf.argmax(box, 1), seed + row["label"]


def text_to_numbers(record: Any) -> Any:
    """`tf.vectorized_map` does not know how, and is not asked."""
    return tf.strings.to_number(tf.strings.as_string(features_of(record)["label"]))


def of_nested_function(record: Any) -> Any:
    return tf.function(pixels)(record)


def exponentials(record: Any) -> Any:
    return tf.exp(features_of(record)["box"])


def sums(record: Any) -> Any:
    return tf.reduce_sum(features_of(record)["box"])


def noise(record: Any, seed: Any) -> Any:
    return tf.random.stateless_normal([3], seed) + features_of(record)["box"][0, 0]


def first_bytes(record: Any) -> Any:
    """Its own result always has two numbers, what it is cut from has not."""
    return tf.io.decode_raw(tf.strings.substr(record, 0, 2 + tf.strings.length(record) % 3), tf.uint8)[:2]


def any_length(record: Any) -> Any:
    return tf.io.decode_raw(record, tf.uint8)


@pytest.mark.parametrize(
    ("parse", "at_once"),
    [
        (pixels, True),
        (mixed, True),
        (of_nested_function, False),
        (text_to_numbers, False),
        (exponentials, False),
        (sums, False),
        (noise, False),
        (first_bytes, False),
        (any_length, False),
    ],
)
def test_batches_are_the_parsed_records(parse: Callable[..., Any], at_once: bool) -> None:
    of_rows, spec = batch_parser(parse)
    traced = tf.function(of_rows).get_concrete_function(
        tf.TensorSpec([None], tf.string), tf.TensorSpec([None, 2], tf.int64)
    )
    definition = traced.graph.as_graph_def()
    kinds = {node.op for node in [*definition.node, *(n for f in definition.library.function for n in f.node_def)]}
    assert not kinds & {"While", "StatelessWhile"} if at_once else kinds & {"While", "StatelessWhile"}
    one = tf.function(parse if parse in (mixed, noise) else lambda record, _: parse(record))
    for numbers in ([3, 1, 4, 1, 5, 9, 2, 6], [8], [] if at_once else [0]):
        records, seeds = (
            [example(number) for number in numbers],
            np.array([[7, number] for number in numbers], np.int64),
        )
        found = traced(tf.constant(records, tf.string, [len(records)]), tf.constant(seeds.reshape(-1, 2)))
        expected = [
            tf.nest.flatten(one(tf.constant(row), tf.constant(seed))) for row, seed in zip(records, seeds, strict=True)
        ]
        for at, (part, leaf) in enumerate(zip(found, tf.nest.flatten(spec), strict=True)):
            assert part.shape[0] == len(numbers)
            assert part.dtype == leaf.dtype
            for row, own in zip(part, expected, strict=True):
                np.testing.assert_array_equal(row, own[at], strict=True)


def test_records_of_other_shapes_are_named() -> None:
    of_rows, _ = batch_parser(any_length)
    seeds = tf.constant([[0, 12], [0, 7], [0, 30]], tf.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape \[2\] for record 12, .* \[3\] for record 30"):
        tf.function(of_rows)(tf.constant([b"ab", b"cd", b"efg"]), seeds)
