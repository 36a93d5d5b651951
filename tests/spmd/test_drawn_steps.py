"""Functions put together at random, and their gradients: divided over any ranks they have one worker's numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spmd.rank_threads import Step, assert_as_one_worker

_WIDTH = 3
_KERNEL = np.random.default_rng(5).standard_normal((_WIDTH, _WIDTH))


def _per_row(x: Any) -> Any:
    """Any number of entries a row, as three."""
    flat = tf.reshape(x, [tf.shape(x)[0], -1])
    return tf.stack([tf.reduce_sum(flat, 1), tf.reduce_max(flat, 1), tf.math.sin(flat[:, 0])], 1)


_PARTS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda x, w: tf.matmul(x, w),
    "tanh": lambda x, w: tf.tanh(x) + w[0],
    "soft-max": lambda x, _: tf.nn.softmax(x),
    "soft-max over rows": lambda x, _: tf.nn.softmax(x, axis=0),
    "normalized": lambda x, _: (x - tf.reduce_mean(x, 0)) / tf.sqrt(tf.math.reduce_variance(x, 0) + 0.1),
    "row by row": lambda x, _: x / (1.0 + tf.norm(x + 2.0, axis=1, keepdims=True)),
    "pairs of rows": lambda x, _: tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x),
    "crossed": lambda x, _: _per_row(tf.reshape(x[:, :, None] * x[:, None, :], [-1, _WIDTH * _WIDTH])),
    "columns as rows": lambda x, _: tf.reshape(tf.reshape(x, [-1, 1]) * 2.0, tf.shape(x)),
    "transposed": lambda x, _: tf.transpose(tf.cumsum(tf.transpose(x), 0)),
    "sums so far": lambda x, _: tf.cumsum(x, 0) / tf.cast(tf.shape(x)[0], x.dtype),
    "first row": lambda x, _: x + x[:1],
    "without the last row": lambda x, _: tf.concat([x[:1], x[:-1]], 0),
    "turned": lambda x, _: tf.reverse(x, [0]) + tf.reverse(x, [1]),
    "two views": lambda x, _: tf.reduce_mean(tf.reshape(tf.concat([x, 2.0 * x], 0), [2, -1, _WIDTH]), 0),
    "repeated": lambda x, _: tf.reduce_mean(tf.reshape(tf.tile(x, [1, 2]), [-1, 2, _WIDTH]), 1),
    "largest rows": lambda x, _: tf.gather(x, tf.argsort(tf.reduce_sum(x, 1))),
    "chosen": lambda x, w: tf.where(x > 0.0, x * 0.5, w[1]),
    "of all rows": lambda x, _: x * tf.reduce_max(tf.abs(x)) + tf.reduce_mean(x),
    "codes": lambda x, w: x + tf.matmul(tf.one_hot(tf.argmax(x, 1), _WIDTH, dtype=x.dtype), w),
    "places": lambda x, _: x + tf.cast(tf.range(tf.shape(x)[0]), x.dtype)[:, None] * 0.1,
    "padded": lambda x, _: tf.pad(x, [[0, 0], [1, 1]])[:, 1:-1] + tf.pad(x, [[1, 0], [0, 0]])[:-1],
    "looped": lambda x, w: tf.while_loop(
        lambda turn, _: turn < 2, lambda turn, value: (turn + 1, tf.tanh(tf.matmul(value, w))), [0, x]
    )[1],
    "scanned": lambda x, w: tf.scan(
        lambda state, row: tf.tanh(state + row @ w), x[:, None, :], tf.zeros([1, _WIDTH], x.dtype)
    )[:, 0],
    "branched": lambda x, _: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 1.5, lambda: x - 0.5),
    "einsum": lambda x, w: tf.einsum("ni,ij,nj->nj", x, w, x),
}
_ENDS: dict[str, Callable[[Any], Any]] = {
    "sum": tf.reduce_sum,
    "mean": lambda x: tf.reduce_mean(tf.square(x)),
    "of rows": lambda x: tf.reduce_mean(tf.reduce_logsumexp(x, 1)),
    "over rows": lambda x: tf.reduce_logsumexp(x),
}


def _step(names: list[str], end: str) -> Step:
    kernel = tf.Variable(_KERNEL)
    total = tf.Variable(0.0, dtype=tf.float64)

    def run(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for name in names:
                y = _PARTS[name](y, kernel)
            loss = _ENDS[end](y)
        of_rows, of_kernel = tape.gradient(loss, [x, kernel], unconnected_gradients="zero")
        kernel.assign_sub(0.1 * tf.clip_by_norm(of_kernel, 1.0))
        total.assign_add(loss)
        return loss, y, tf.convert_to_tensor(of_rows)

    return Step(run, lambda: [kernel, total])


# An example traces and divides a step for each rank, and one more.
@settings(max_examples=settings.default.max_examples // 5)
@given(
    names=st.lists(st.sampled_from(sorted(_PARTS)), min_size=1, max_size=4),
    end=st.sampled_from(sorted(_ENDS)),
    counts=st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any),
    for_one_length=st.booleans(),
)
def test_any_function_and_its_gradient(names: list[str], end: str, counts: list[int], for_one_length: bool) -> None:
    rows = np.random.default_rng(2).standard_normal((sum(counts), _WIDTH))
    assert_as_one_worker(
        lambda: _step(names, end), [rows], counts, limit=1e-8, for_one_length=for_one_length and sum(counts) > 1
    )
