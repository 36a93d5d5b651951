"""Operations of TensorFlow that go wrong on a rank that has no row, and how they are built there.

Found by running every operation of Keras's steps with no row (`tests/spmd/test_rules.py`); most do what one expects.
"""

from typing import Any

import tensorflow as tf

from paceline.spmd.decisions import Build, Decision, Operation
from paceline.spmd.placements import Sharded


def zeros(decision: Decision) -> Build:
    """For sums over rows that leave memory as they find it if there is nothing to sum."""
    del decision

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        has_rows = builder.num_own_rows() > 0
        return [tf.where(has_rows, output, tf.zeros_like(output)) for output in builder.copied(op, inputs)]

    return build


def one_more_row(decision: Decision) -> Build:
    """For operations that refuse empty tensors: with a row of zeros at the end, which is taken off again."""
    needs = decision.needs
    shards = [output.shard for output in decision.outputs]

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        longer = [
            _with_zeros(tensor, need.dim) if isinstance(need, Sharded) else tensor
            for tensor, need in zip(inputs, needs, strict=True)
        ]
        outputs = builder.copied(op, longer)
        return [
            output if shard is None else tf.gather(output, tf.range(tf.shape(output)[shard.dim] - 1), axis=shard.dim)
            for output, shard in zip(outputs, shards, strict=True)
        ]

    return build


def of_known_shape(decision: Decision) -> Build:
    """For operations that make a wrong shape of a tensor without a row: that which was told when the step was traced.

    oneDNN's convolutions in float32 give their output the shape of the images; those of GPUs and of float64 are right.
    Sizes that were open stay as they are.
    """
    (spec,) = decision.outputs
    assert spec.shard is not None
    assert spec.dims is not None
    dim, sizes = spec.shard.dim, [size.number for size in spec.dims]

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        (output,) = builder.copied(op, inputs)
        if output.dtype == tf.float64 or tf.config.list_logical_devices("GPU"):
            return [output]
        now = tf.unstack(tf.shape(output))
        told = [now[axis] if size is None else size for axis, size in enumerate(sizes)]
        told[dim] = tf.shape(inputs[0])[dim]
        # A zero that grappler does not see through: it takes away a change to a shape that it takes for the same.
        return [tf.reshape(output, tf.stack(told) + tf.minimum(told[dim], 0))]

    return build


def filled(decision: Decision) -> Build:
    """For operations that end the process without a row, or remember nothing for their gradient: with a row of zeros
    where there is none. Where there are rows nothing is copied.

    The gradient of a pool reads what the pool has read and made, so that oneDNN keeps the two together: apart, the
    gradient takes ten times as long.
    """

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        given = [
            builder.filled(tensor, need) if isinstance(need, Sharded) else tensor
            for tensor, need in zip(inputs, decision.needs, strict=True)
        ]
        outputs = builder.copied(op, given)
        return [
            output if spec.shard is None else builder.emptied(output, spec.shard)
            for output, spec in zip(outputs, decision.outputs, strict=True)
        ]

    return build


def apart(decision: Decision) -> Build:
    """For operations that TensorFlow would merge with another one, into one that makes too few outputs without a row.

    oneDNN merges the gradient of a bias into that of a convolution's filters if both read the same tensor; apart, the
    two take less time, too. Nothing is copied, and no optimizer of TensorFlow's takes the operation between away.
    """
    del decision

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        first = tf.ensure_shape(inputs[0], [None] * inputs[0].shape.rank)
        return list(builder.copied(op, [first, *inputs[1:]]))

    return build


def _with_zeros(tensor: Any, dim: int) -> Any:
    paddings = [[0, 1 if axis == dim else 0] for axis in range(tensor.shape.rank)]
    return tf.pad(tensor, paddings)
