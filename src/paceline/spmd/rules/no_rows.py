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


def filled_for_onednn(decision: Decision) -> Build:
    """`filled`, for oneDNN's convolutions in float32: without a row, their output has the shape of the images.

    Those of GPUs and of float64 are right.
    """
    with_row = filled(decision)

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        if op.outputs[0].dtype == tf.float64 or tf.config.list_logical_devices("GPU"):
            return list(builder.copied(op, inputs))
        return with_row(builder, op, inputs)

    return build


def still_filled(decision: Decision) -> Build:
    """For operations that TensorFlow merges with the convolution before them: no other operation may stand between.

    Where all that it reads of the rows has a row more already, that row stays for this operation, too. What is computed
    of it is taken off before any other operation.
    """
    with_row = filled(decision)
    shards = [need if isinstance(need, Sharded) else None for need in decision.needs]

    def build(builder: Any, op: Operation, inputs: list[Any]) -> list[Any]:
        of_rows = [tensor for tensor, shard in zip(inputs, shards, strict=True) if shard is not None]
        if all(map(builder.is_filled, of_rows)):
            return with_row(builder, op, inputs)
        return list(builder.copied(op, inputs))

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
