"""A sum over the rows of the rank to which a row belongs: what a step asks for that is to differ from one worker's.

    rows of rank 0    a            rows of rank 0    a + b
                      b      ─►                      a + b
    rows of rank 1    c            rows of rank 1    c

In a traced step this is one call of a function with a name that the partitioner knows (`rules/own_rows.py`): divided,
it takes no message. In a graph that is not divided it is the sum over all rows, as if one rank had them.

As a matrix over rows it is symmetric, so it is its own gradient.
"""

import functools
from typing import Any

import tensorflow as tf

NAME = "paceline.sum_over_own_rows"
"""What the called function says that it implements."""


def sum_over_own_rows(x: Any) -> Any:
    """The sum over the rows of the same rank, for each row.

    Args:
        x: Of shape [rows, ...], of which the other sizes may be open; floating.

    Returns:
        A tensor of the same shape and type.
    """

    def called(x: Any) -> Any:
        function = _function(x.dtype, tuple(x.shape[1:].as_list()))
        (sums,) = tf.raw_ops.PartitionedCall(args=[x], Tout=[x.dtype], f=function)
        sums.set_shape(x.shape)
        return sums, sum_over_own_rows

    return tf.custom_gradient(called)(x)


def summed(x: Any) -> Any:
    """The sum over all rows of `x`, for each row; of no row, none."""
    return tf.broadcast_to(tf.reduce_sum(x, 0, keepdims=True), tf.shape(x))


@functools.cache
def _function(dtype: Any, shape: tuple[int | None, ...]) -> Any:
    """`summed` for tensors of any number of rows, as a concrete function."""
    spec = tf.TensorSpec([None, *shape], dtype)
    return tf.function(
        summed, autograph=False, input_signature=[spec], experimental_implements=NAME
    ).get_concrete_function()
