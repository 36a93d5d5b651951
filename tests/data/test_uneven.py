"""Batches without rows look like those before them."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from paceline.data.own_rows.uneven import can_be_empty, followed_by_empty_batches, shapes_of_another


def _images(count: int) -> Any:
    """Batches of two images, each batch of a size of its own, which the dataset does not tell."""

    def generate() -> Any:
        for number in range(count):
            yield {"image": np.ones([2, 7 + number, 5, 3], "float32"), "label": np.zeros([2], "int64")}

    signature = {"image": tf.TensorSpec([None, None, None, 3]), "label": tf.TensorSpec([None], tf.int64)}
    return tf.data.Dataset.from_generator(generate, output_signature=signature)


def test_unknown_sizes_are_those_of_the_batch_before() -> None:
    followed = followed_by_empty_batches(_images(2))
    assert followed.element_spec == _images(2).element_spec
    shapes = [tuple(batch["image"].shape) for batch in followed.take(4)]
    assert shapes == [(2, 7, 5, 3), (2, 8, 5, 3), (0, 8, 5, 3), (0, 8, 5, 3)]
    assert [len(batch["label"]) for batch in followed.take(4)] == [2, 2, 0, 0]


def test_a_rank_without_batches_takes_the_sizes_of_another() -> None:
    counts = np.array([0, 3])
    told: list[Any] = []
    assert shapes_of_another(_images(3), counts, 1, lambda own: told.append(own) or np.zeros_like(own)) is None
    shapes = shapes_of_another(_images(0), counts, 0, lambda own: np.concatenate([own, *told]))
    assert shapes is not None
    [batch] = followed_by_empty_batches(_images(0), shapes).take(1)
    assert tuple(batch["image"].shape) == (0, 7, 5, 3)
    assert tuple(batch["label"].shape) == (0,)


@pytest.mark.parametrize("counts", [[1, 2], [0, 0], [-2, 3], [0, -2]])
def test_nobody_asks_where_all_have_batches_or_none_is_known_to(counts: list[int]) -> None:
    def gather(own: Any) -> Any:
        raise AssertionError(own)

    assert shapes_of_another(_images(2), np.array(counts), 0, gather) is None
    known = tf.data.Dataset.range(4).batch(2)
    assert shapes_of_another(known, np.array([0, 2]), 0, gather) is None


def test_every_kind_of_component() -> None:
    rows = {
        "ragged": tf.ragged.constant([[1], [2, 3], []]),
        "inner": tf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]], []], ragged_rank=1, inner_shape=(2,)),
        "sparse": tf.sparse.from_dense(np.eye(3)),
        "text": ["a", "b", "c"],
    }
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(2)
    followed = followed_by_empty_batches(dataset)
    assert followed.element_spec == dataset.element_spec
    full, rest, empty, _ = followed.take(4)
    assert [full["ragged"].to_list(), rest["ragged"].to_list(), empty["ragged"].to_list()] == [[[1], [2, 3]], [[]], []]
    assert tuple(empty["inner"].flat_values.shape) == (0, 2)
    assert [batch["sparse"].dense_shape.numpy().tolist() for batch in (full, rest, empty)] == [[2, 3], [1, 3], [0, 3]]
    assert len(empty["text"]) == 0


def test_known_numbers_of_rows_do_not_hinder() -> None:
    dataset = tf.data.Dataset.from_tensor_slices((np.ones([4, 3]),)).batch(2, drop_remainder=True)
    assert [tuple(batch.shape) for (batch,) in followed_by_empty_batches(dataset).take(3)] == [(2, 3), (2, 3), (0, 3)]


def test_what_cannot_be_empty_stays_as_it_is() -> None:
    dataset = tf.data.Dataset.from_tensors((tf.range(4), tf.constant(0.5)))
    assert not can_be_empty(dataset.element_spec)
    assert followed_by_empty_batches(dataset) is dataset


def test_the_position_can_be_saved_and_restored(tmp_path: Any) -> None:
    iterator = iter(followed_by_empty_batches(tf.data.Dataset.range(5).map(lambda x: tf.range(x)[:, None]).batch(1)))
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "cursor"))
    shape = tuple(next(iterator).shape)
    restored = iter(followed_by_empty_batches(tf.data.Dataset.range(5).map(lambda x: tf.range(x)[:, None]).batch(1)))
    tf.train.Checkpoint(iterator=restored).read(path)
    assert tuple(next(restored).shape) == shape == (1, 1, 1)
