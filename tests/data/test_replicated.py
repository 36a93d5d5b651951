"""Which components of a batch every rank gets whole: those that were batched with another size than the others."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from paceline.data.own_rows.replicated import Replicated, marked, replicated_components, unmarked


def _rows(number: int, *shape: int) -> Any:
    return tf.data.Dataset.from_tensor_slices(tf.zeros([number, *shape]))


MANY, FEW = _rows(40, 3), _rows(12, 3)

CASES: dict[str, tuple[Callable[[], Any], tuple[bool, ...]]] = {
    "one size": (lambda: tf.data.Dataset.zip((MANY, FEW)).batch(8), ()),
    "two of one size": (lambda: tf.data.Dataset.zip((MANY.batch(8), FEW.batch(8))), ()),
    "two sizes": (lambda: tf.data.Dataset.zip((MANY.batch(8), FEW.batch(3))), (False, True)),
    "the longer one last": (lambda: tf.data.Dataset.zip((FEW.batch(3), MANY.batch(8))), (True, False)),
    "pairs": (
        lambda: tf.data.Dataset.zip(
            {"b": tf.data.Dataset.zip((FEW, FEW)).batch(3), "a": MANY.shuffle(9).batch(8).prefetch(1)}
        ).repeat(),
        (False, True, True),
    ),
    "behind a map of one of them": (
        lambda: tf.data.Dataset.zip((MANY.batch(8).map(lambda x: (x, 2 * x)), FEW.padded_batch(3))),
        (False, False, True),
    ),
    "behind a map of both": (
        lambda: tf.data.Dataset.zip((MANY.batch(8), FEW.batch(3))).map(lambda x, y: tf.concat([x, y], 0)),
        (),
    ),
    "a constant beside a batch": (
        lambda: MANY.batch(8, drop_remainder=True).map(lambda x: (x, tf.zeros([5, 2]), 1.0)),
        (False, True, False),
    ),
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
    rows = tf.data.Dataset.zip((MANY.batch(8), FEW.batch(3)))
    with_marks = rows.map(lambda *element: marked(element, (False, True))).prefetch(1)
    assert unmarked(with_marks.element_spec) == rows.element_spec == unmarked(marked(rows.element_spec, (False, True)))
    many, few = next(iter(with_marks))
    assert isinstance(few, Replicated)
    assert [tuple(one.shape) for one in unmarked((many, few))] == [(8, 3), (3, 3)]
