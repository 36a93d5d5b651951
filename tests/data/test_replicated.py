"""Which components of a batch every rank gets whole: those that were batched with another size than the others."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from paceline.data.own_rows.replicated import WholeRows, replicated_components, unwrapped, wrapped


def _rows(number: int, *shape: int) -> Any:
    return tf.data.Dataset.from_tensor_slices(tf.zeros([number, *shape]))


def _many() -> Any:
    return _rows(40, 3)


def _few() -> Any:
    return _rows(12, 3)


CASES: dict[str, tuple[Callable[[], Any], tuple[bool, ...]]] = {
    "one size": (lambda: tf.data.Dataset.zip((_many(), _few())).batch(8), ()),
    "two of one size": (lambda: tf.data.Dataset.zip((_many().batch(8), _few().batch(8))), ()),
    "two sizes": (lambda: tf.data.Dataset.zip((_many().batch(8), _few().batch(3))), (False, True)),
    "the longer one last": (lambda: tf.data.Dataset.zip((_few().batch(3), _many().batch(8))), (True, False)),
    "pairs": (
        lambda: tf.data.Dataset.zip(
            {"b": tf.data.Dataset.zip((_few(), _few())).batch(3), "a": _many().shuffle(9).batch(8).prefetch(1)}
        ).repeat(),
        (False, True, True),
    ),
    "behind a map of one of them": (
        lambda: tf.data.Dataset.zip((_many().batch(8).map(lambda x: (x, 2 * x)), _few().padded_batch(3))),
        (False, False, True),
    ),
    "behind a map of both": (
        lambda: tf.data.Dataset.zip((_many().batch(8), _few().batch(3))).map(lambda x, y: tf.concat([x, y], 0)),
        (),
    ),
    "a constant beside a batch": (
        lambda: _many().batch(8, drop_remainder=True).map(lambda x: (x, tf.zeros([5, 2]), 1.0)),
        (False, True, False),
    ),
    "two views of each row": (
        lambda: _many().batch(8, drop_remainder=True).map(lambda x: (tf.concat([x, x], 0), tf.zeros([16, 1]))),
        (),
    ),
    "pairs of rows": (lambda: _many().batch(8, drop_remainder=True).map(lambda x: tf.reshape(x, [4, 2, 3])), ()),
    "batches of one that are taken apart": (lambda: _rows(9, 16, 8).batch(1).map(lambda x: x[0]), ()),
    "single examples": (lambda: tf.data.Dataset.zip((_rows(9, 28, 28), _rows(9, 10))), ()),
    "not known": (
        lambda: tf.data.Dataset.from_generator(
            lambda: iter([(tf.zeros([4, 2]), tf.zeros([3]))]),
            output_signature=(tf.TensorSpec([None, 2]), tf.TensorSpec([None])),
        ),
        (),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_components_with_rows_of_their_own(name: str) -> None:
    make, expected = CASES[name]
    assert replicated_components(make()) == expected


def test_marks_travel_with_batches_and_come_off() -> None:
    rows = tf.data.Dataset.zip((_many().batch(8), _few().batch(3)))
    with_marks = rows.map(lambda *element: wrapped(element, (False, True))).prefetch(1)
    assert (
        unwrapped(with_marks.element_spec) == rows.element_spec == unwrapped(wrapped(rows.element_spec, (False, True)))
    )
    many, few = next(iter(with_marks))
    assert isinstance(few, WholeRows)
    assert [tuple(one.shape) for one in unwrapped((many, few))] == [(8, 3), (3, 3)]
