"""Variables are copied as they are at this step, and not held on to."""

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

from paceline.resilience.copy_buffers import CopyBuffers
from paceline.resilience.parts import Layout, Scope, capture
from paceline.resilience.saved_variables import variables_part

ALONE = Layout(0, ((0,),))


def address(variable: tf.Variable) -> int:
    found = np.asarray(tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype))
    return int(found.__array_interface__["data"][0])


def test_the_next_step_changes_the_variable_in_its_place_and_not_the_copy() -> None:
    variable = tf.Variable(np.arange(100_000, dtype=np.float32))
    memory = CopyBuffers()
    first, in_place = None, []
    for step in range(5):
        memory.begin()
        shard = capture([variables_part("w", Scope.GROUP, lambda: [variable])], ALONE).copied(memory)
        memory.end()
        [[_, shape, at]], tensors = shard.state["w"], shard.tensors
        before = address(variable)
        variable.assign_add(tf.ones_like(variable))
        in_place.append(address(variable) == before)
        assert shape == [100_000]
        np.testing.assert_array_equal(tensors[at], np.arange(100_000) + step)
        first = tensors[at] if first is None else first
        assert tensors[at] is first
    # Not each time: a thread of TensorFlow's may still be letting go of what was read.
    assert any(in_place), "a tensor of the copying is held: each step would get new memory"


def test_every_kind_of_variable() -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        mirrored = tf.Variable([1.0, 2.0])
        local = tf.Variable(
            3.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
            trainable=False,
        )
    found = [
        (mirrored, np.float32, [1.0, 2.0]),
        (local, np.float32, 3.0),
        (tf.Variable(4.0, dtype=tf.bfloat16), ml_dtypes.bfloat16, 4.0),
        (tf.Variable([5.0], dtype=tf.bfloat16), ml_dtypes.bfloat16, [5.0]),
        (tf.Variable(True), np.bool_, True),
        (tf.Variable(np.zeros((0, 3))), np.float64, np.zeros((0, 3))),
        (keras.Variable(6), np.int32, 6),
        (keras.Variable([[7.0]], dtype="float16"), np.float16, [[7.0]]),
        (tf.Variable([8.0, 9.0], shape=[None]), np.float32, [8.0, 9.0]),
    ]
    memory = CopyBuffers()
    part = variables_part("all", Scope.RANK, lambda: [variable for variable, _, _ in found])
    shard = capture([part], ALONE).copied(memory)
    memory.end()
    tensors = shard.tensors
    for (_, dtype, value), (_, shape, at) in zip(found, shard.state["all"], strict=True):
        assert tensors[at].dtype == dtype
        assert list(tensors[at].shape) == shape == [*np.shape(value)]
        np.testing.assert_array_equal(tensors[at].astype("float64"), np.asarray(value, "float64"))
