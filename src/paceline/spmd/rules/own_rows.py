"""A sum over the rows of the rank to which a row belongs: what a step asks for that is to differ from one worker's.

    rows of rank 0    a            rows of rank 0    a + b
                      b      ─►                      a + b
    rows of rank 1    c            rows of rank 1    c

In a traced step this is one call of a function with a name that the partitioner knows. Divided, the call takes no
message: rows stay rows. In a graph that is not divided it is the sum over all rows, as if one rank had them. As a
matrix over rows the sum is symmetric, so it is its own gradient.

The rule is not among those of TensorFlow's operations, of which each is proved to compute what one worker computes.
"""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.spmd import compat
from paceline.spmd.decisions import Decision, Operation
from paceline.spmd.placements import Sharded, Spec
from paceline.spmd.rules.rule import Rule
from paceline.spmd.sizes import ROWS, Size, counts_rows

NAME = "paceline.sum_over_own_rows"
"""What the called function says that it implements."""

SCOPE = "paceline_own_rows"
"""In the names of the operations that sum over own rows in a divided graph."""


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


def rule_of(op: Operation) -> Rule | None:
    """The rule of a call that sums over own rows; None of any other operation."""
    return _on_own_rows if compat.implemented_by(op) == NAME else None


def _on_own_rows(op: Operation, specs: Sequence[Spec]) -> Decision | None:
    """Own rows are what this rank has, or cuts out of what is whole.

    Where the first dimension is not the rows, all of it is summed, as one worker does.
    """
    del op
    (spec,) = specs
    shard = spec.shard
    if shard is None or shard.dim != 0:
        if not spec.dims or not counts_rows(spec.dims[0]):
            return None
        block = spec.dims[0].over(Size.of(ROWS))
        if not block.known:
            return None
        shard = Sharded(0, block)
    return Decision((shard,), (Spec(shard, spec.dims),), _built)


def _built(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
    del builder, op
    with tf.name_scope(SCOPE):
        return [summed(inputs[0])]
