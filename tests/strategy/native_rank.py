"""A rank that checks TensorFlow's collectives in graphs: ``native_rank.py`` under ``PACELINE_COMMUNICATION=ring``."""

import faulthandler
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import paceline
from paceline.comm.group import Reduction
from paceline.comm.world import current_world
from paceline.strategy.bridged_collectives import NativeCollectives

faulthandler.dump_traceback_later(120, exit=True)

world = current_world()
rank, size = world.rank, world.size
assert not world.formed
collectives = paceline.MultiWorkerMirroredStrategy().extended.collectives
assert isinstance(collectives, NativeCollectives)

DTYPES = ["bool", "int8", "uint8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32"]
DTYPES += ["float64", "complex64", "complex128"]


def of_rank(of: int, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    whole = np.random.default_rng([of, len(dtype)]).integers(0, 9, shape)
    return np.asarray(tf.cast(whole, dtype))


def same(tensor: Any, expected: np.ndarray) -> None:
    assert tensor.dtype.as_numpy_dtype == expected.dtype
    np.testing.assert_array_equal(tensor.numpy(), expected)


def check_every_dtype(wrap: Callable[[Any], Any]) -> None:
    everyones = [[of_rank(of, dtype, (3, 2)) for dtype in DTYPES] for of in range(size)]
    real = [not dtype.startswith("complex") for dtype in DTYPES]
    own = everyones[rank]
    ordered = [array for array, is_real in zip(own, real, strict=True) if is_real]
    sums, greatest, chiefs = wrap(
        lambda: (
            collectives.all_reduce(own),
            collectives.all_reduce(ordered, Reduction.MAX),
            collectives.broadcast(own),
        )
    )()
    for index, total in enumerate(sums):
        same(total, sum((one[index] for one in everyones[1:]), everyones[0][index]))
    for index, most in zip([index for index, is_real in enumerate(real) if is_real], greatest, strict=True):
        same(most, np.maximum.reduce([one[index] for one in everyones]))
    for index, value in enumerate(chiefs):
        same(value, everyones[0][index])


def check_gathering_rows_that_change(wrap: Callable[[Any], Any]) -> None:
    @wrap
    def gather(own: Any) -> Any:
        return collectives.all_gather(own)

    for step in range(6):
        rows = [(of + step) % 3 for of in range(size)]
        own = tf.fill([rows[rank], 2], float(rank))
        expected = np.concatenate([np.full((count, 2), float(of), np.float32) for of, count in enumerate(rows)])
        same(gather(own), expected)


def check_order_in_nested_graphs() -> None:
    """Independent collectives with one key: in another order on one rank they would give other sums."""

    @tf.function
    def inner(value: Any) -> Any:
        return collectives.all_reduce([value])[0]

    @tf.function
    def outer(start: Any) -> Any:
        totals = tf.TensorArray(tf.float32, 12)
        for step in tf.range(4):
            weight = tf.cast(step + 1, tf.float32)
            first = inner(start * weight)
            if step % 2 == 0:
                second = collectives.all_reduce([start * 100.0])[0]
            else:
                second = collectives.broadcast([start * 7.0])[0]
            third = inner(start * 0.0 + 1.0)
            totals = totals.write(3 * step, first).write(3 * step + 1, second).write(3 * step + 2, third)
        return totals.stack()

    everyones = sum(range(1, size + 1))
    expected = [
        value for step in range(4) for value in (everyones * (step + 1), everyones * 100 if step % 2 == 0 else 7, size)
    ]
    for _ in range(5):
        same(outer(tf.constant(float(rank + 1))), np.array(expected, np.float32))


def check_graphs_and_arrays_take_turns() -> None:
    reduce = tf.function(lambda value: collectives.all_reduce([value])[0])
    for step in range(10):
        assert reduce(tf.constant(float(step))).numpy() == size * step
        [total] = world.group.all_reduce([np.float32(step).reshape(())])
        assert total == size * step


def check_unknown_shapes() -> None:
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def reduce(value: Any) -> Any:
        return collectives.all_reduce([value])[0]

    for shape in ((2, 3), (0, 4), (), (5,)):
        same(reduce(tf.ones(shape)), np.full(shape, size, np.float32))


check_every_dtype(tf.function)
check_every_dtype(lambda function: function)
check_gathering_rows_that_change(functools.partial(tf.function, reduce_retracing=True))
check_gathering_rows_that_change(lambda function: function)
check_order_in_nested_graphs()
check_graphs_and_arrays_take_turns()
check_unknown_shapes()
assert world.formed
print("all checks passed", flush=True)
