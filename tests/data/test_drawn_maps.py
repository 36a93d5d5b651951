"""Maps put together at random: where they are said to be row by row, own rows have the bits of one worker's batch.

Of batches of one length TensorFlow's graph optimiser knows the shapes, and adds three tensors in another order: own
rows then equal the batch to the last digit or two of float32.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.own_rows.row_wise import is_row_wise, rows_of_map

_WIDTH = 3


def _as_wide(x: Any) -> Any:
    return tf.reshape(x, [tf.shape(x)[0], math.prod(x.shape[1:])])[:, :_WIDTH]


def _whole_numbers(x: Any) -> Any:
    return tf.cast(tf.clip_by_value(x, -9.0, 9.0) * 100.0, tf.int32)


_Part = Callable[[Any], Any]

_ROW_BY_ROW: dict[str, _Part] = {
    "scaled": lambda x: x * 0.1 + 3.0,
    "divided": lambda x: (x - 1.0) / tf.sqrt([7.0, 2.0, 3.0]),
    "root": lambda x: tf.sqrt(tf.abs(x)) - tf.square(x[:, :1]),
    "chosen": lambda x: tf.where(x > 0.5, x, -2.0 * x),
    "codes": lambda x: x + tf.one_hot(tf.argmax(x, 1), _WIDTH),
    "table": lambda x: x - tf.gather(tf.constant([[1.0, 2.5, 3.0], [0.3, 0.1, 7.0]]), _whole_numbers(x)[:, 0] % 2),
    "in columns": lambda x: tf.reshape(tf.reshape(x, [-1, 1]) * 3.0, tf.shape(x)),
    "in a line": lambda x: tf.reshape(tf.maximum(tf.reshape(x, [-1]), 0.3), [-1, _WIDTH]),
    "transposed": lambda x: tf.transpose(tf.transpose(x) - [[1.0], [2.0], [4.0]]),
    "joined": lambda x: tf.concat([x[:, 1:], x[..., :1]], 1),
    "stacked": lambda x: _as_wide(tf.stack([x, x[:, ::-1]], -1)),
    "like": lambda x: x + tf.ones_like(x) * 0.7,
    "filled": lambda x: x * tf.fill(tf.shape(x), 1.3),
    "sums of whole numbers": lambda x: x + tf.cast(tf.reduce_sum(_whole_numbers(x), 1, keepdims=True), x.dtype) / 3.0,
    "text": lambda x: tf.strings.to_number(tf.strings.as_string(x)),
    "padded": lambda x: _as_wide(tf.pad(x, [[0, 0], [1, 1]], constant_values=0.2)),
    "repeated": lambda x: _as_wide(tf.tile(x[:, tf.newaxis], [1, 2, 1])),
    "columns": lambda x: tf.gather(x, [2, 0, 1], axis=1),
    "parts": lambda x: tf.add_n(tf.split(tf.concat([x, x * 0.3], 1), 2, axis=1)),
}
_OF_ONE_LENGTH: dict[str, _Part] = {
    "places": lambda x: x + tf.cast(tf.range(tf.shape(x)[0]), x.dtype)[:, tf.newaxis] * 0.1,
    "number of rows": lambda x: x / tf.cast(tf.shape(x)[0], x.dtype),
}
_OTHERS: dict[str, _Part] = {
    "exponentials": lambda x: tf.exp(-tf.abs(x)),
    "sums": lambda x: x / (1.0 + tf.reduce_sum(tf.abs(x), 1, keepdims=True)),
    "means": lambda x: x - tf.reduce_mean(x, 0),
    "turned": lambda x: tf.reverse(x, [0]),
    "first row": lambda x: x + x[:1],
    "sums so far": lambda x: tf.cumsum(x),
    "sorted": lambda x: tf.sort(x, 0),
    "pairs": lambda x: x + tf.reduce_sum(tf.matmul(x, x, transpose_b=True), 1, keepdims=True),
    "random": lambda x: x + tf.random.uniform([_WIDTH]),
}
_PARTS = {**_ROW_BY_ROW, **_OF_ONE_LENGTH, **_OTHERS}


@given(
    names=st.lists(st.sampled_from(sorted(_PARTS)), min_size=1, max_size=4),
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(lambda counts: sum(counts) > 1),
    for_one_length=st.booleans(),
    seed=st.integers(0, 99),
)
def test_own_rows_have_the_bits_of_the_batch(
    names: list[str], counts: list[int], for_one_length: bool, seed: int
) -> None:
    rows = np.random.default_rng(seed).normal(scale=3, size=(sum(counts), _WIDTH)).astype(np.float32)

    @tf.autograph.experimental.do_not_convert
    def function(x: Any) -> Any:
        for name in names:
            x = _PARTS[name](x)
        return x

    batches = tf.data.Dataset.from_tensor_slices(rows).batch(len(rows), drop_remainder=for_one_length)
    mapped = batches.map(function)
    is_known = _ROW_BY_ROW.keys() | (_OF_ONE_LENGTH.keys() if for_one_length else set())
    assert is_row_wise(mapped) == (set(names) <= is_known)
    if not is_row_wise(mapped):
        return
    [whole] = mapped
    parts = []
    for count, end in zip(counts, np.cumsum(counts), strict=True):
        own = range(end - count, end)
        of_rank = tf.data.Dataset.from_tensors(rows[own.start : own.stop]).map(
            lambda x, own=own: rows_of_map(mapped, own, [x])[0]
        )
        parts += [part.numpy() for part in of_rank]
    found, expected = np.concatenate(parts), whole.numpy()
    if for_one_length:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-5)
    else:
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))
