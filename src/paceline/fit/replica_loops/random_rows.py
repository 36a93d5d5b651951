"""Random numbers for the rows of a batch: each rank takes those of its own rows from the sequence of one worker.

TensorFlow's stateless generators count: element i of a result comes from the seed and from the block number
i // (elements in a block), whatever was drawn before it. So a rank whose rows begin at row b of the global batch starts
counting at b times the elements of a row, and draws the numbers that one worker would have drawn for these rows, in the
time that they take. Dropout's masks, noise and augmentation are then those of one worker.

    one worker   │ block 0 │ block 1 │ block 2 │ block 3 │ block 4 │ …        (Philox: 4 numbers of 32 bits in a block)
    rows         │ rank 0's rows ────────► │ rank 1's rows ────────►
    rank 1                         │ begins in the middle of block 2: drops what is before it

What has nothing to do with rows (noise on weights) is drawn alike on all ranks, as one worker does. Generators that
throw numbers away (truncated normal, gamma, beta, binomial, categorical) cannot start in the middle: each rank draws
other numbers, not one worker's.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from paceline.fit.compat import random_module
from paceline.fit.replica import current_batch_replica
from paceline.fit.replica_loops.nested_calls import nested_calls
from paceline.strategy.replica_context import StepRows

Function = Callable[..., Any]

_PHILOX = 1
_BLOCK_BYTES = 16
_NUMBER_BYTES = {tf.float64: 8, tf.int64: 8}
"""What one number takes of a block; the others take 4, half precision too."""

_OTHER_NUMBERS_BY_RANK = 0x9E37
"""Added to a seed once for each rank below."""


class RowGenerator:
    """Stateless random numbers of a shape whose first axis may be that of the batch.

    Args:
        rows: The step's.
        seed: int32 tensor of two numbers, equal on all ranks.
    """

    def __init__(self, rows: StepRows, seed: Any) -> None:
        self._rows = rows
        self._key, self._counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)

    def uniform(self, shape: Any, dtype: Any) -> Any:
        """Uniform in [0, 1)."""
        return self._draw(tf.raw_ops.StatelessRandomUniformV2, shape, dtype)

    def normal(self, shape: Any, dtype: Any) -> Any:
        """Normal, of mean 0 and standard deviation 1."""
        return self._draw(tf.raw_ops.StatelessRandomNormalV2, shape, dtype)

    def integers(self, shape: Any, low: Any, high: Any, dtype: Any) -> Any:
        """Uniform integers in [low, high) of `dtype` int32 or int64."""
        bounds = {"minval": tf.cast(low, dtype), "maxval": tf.cast(high, dtype)}
        return self._draw(tf.raw_ops.StatelessRandomUniformIntV2, shape, dtype, **bounds)

    def _draw(self, operation: Any, shape: Any, dtype: Any, **bounds: Any) -> Any:
        options = bounds or {"dtype": dtype}
        shape = tf.cast(tf.convert_to_tensor(shape), tf.int64)
        if shape.shape[0] == 0:
            return operation(shape=shape, key=self._key, counter=self._counter, alg=_PHILOX, **options)
        in_block = _BLOCK_BYTES // _NUMBER_BYTES.get(tf.as_dtype(dtype), 4)
        first = first_row(self._rows, shape[0], _static(shape)) * tf.reduce_prod(shape[1:])
        skipped = first % in_block
        counter = self._counter + tf.stack([tf.cast(first // in_block, tf.uint64), tf.constant(0, tf.uint64)])
        length = tf.reshape(skipped + tf.reduce_prod(shape), [1])
        numbers = operation(shape=length, key=self._key, counter=counter, alg=_PHILOX, **options)
        result = tf.reshape(numbers[skipped:], shape)
        result.set_shape(_static(shape))
        return result


def first_row(rows: StepRows, length: Any, static_shape: Any = None) -> Any:
    """Where this rank's part begins on a first axis of this `length`, int64; 0 if the axis is not the batch's.

    It is if its length is that of the rows, or a multiple of it (time steps folded into the batch), and if it is not
    known when the step is built while the rows are not (weights, not rows).
    """
    known = static_shape is not None and static_shape.rank is not None and static_shape[0] is not None
    if known and tf.get_static_value(rows.local) is None:
        return tf.constant(0, tf.int64)
    local = tf.cast(rows.local, tf.int64)
    divisor = tf.maximum(local, 1)
    of_batch = tf.logical_and(local > 0, tf.equal(length % divisor, 0))
    return tf.where(of_batch, rows.begin() * (length // divisor), tf.constant(0, tf.int64))


def _static(shape: Any) -> Any:
    known = tf.get_static_value(shape, partial=True)
    return tf.TensorShape(None if known is None else [None if size is None else int(size) for size in known])


def _seed(seed: Any) -> Any:
    return random_module._cast_seed(random_module.draw_seed(seed))


def uniform(keras_draw: Function) -> Function:
    """Keras's `random.uniform`."""

    def drawn(shape: Any, minval: Any = 0.0, maxval: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
        replica = current_batch_replica()
        if replica is None:
            return keras_draw(shape, minval=minval, maxval=maxval, dtype=dtype, seed=seed)
        dtype = dtype or random_module.floatx()
        low, high = tf.cast(minval, dtype), tf.cast(maxval, dtype)
        return RowGenerator(replica.rows, _seed(seed)).uniform(shape, dtype) * (high - low) + low

    return drawn


def normal(keras_draw: Function) -> Function:
    """Keras's `random.normal`."""

    def drawn(shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = None, seed: Any = None) -> Any:
        replica = current_batch_replica()
        if replica is None:
            return keras_draw(shape, mean=mean, stddev=stddev, dtype=dtype, seed=seed)
        dtype = dtype or random_module.floatx()
        numbers = RowGenerator(replica.rows, _seed(seed)).normal(shape, dtype)
        return numbers * tf.convert_to_tensor(stddev, dtype) + tf.convert_to_tensor(mean, dtype)

    return drawn


def randint(keras_draw: Function) -> Function:
    """Keras's `random.randint`."""

    def drawn(shape: Any, minval: Any, maxval: Any, dtype: Any = "int32", seed: Any = None) -> Any:
        replica = current_batch_replica()
        if replica is None:
            return keras_draw(shape, minval, maxval, dtype=dtype, seed=seed)
        drawn_dtype = dtype if random_module.standardize_dtype(dtype) in ("int32", "int64") else "int64"
        numbers = RowGenerator(replica.rows, _seed(seed)).integers(shape, minval, maxval, drawn_dtype)
        return tf.cast(numbers, dtype)

    return drawn


def dropout(keras_draw: Function) -> Function:
    """Keras's `random.dropout`."""

    def drawn(inputs: Any, rate: Any, noise_shape: Any = None, seed: Any = None) -> Any:
        replica = current_batch_replica()
        if replica is None or rate in (0.0, 1.0):
            return keras_draw(inputs, rate, noise_shape=noise_shape, seed=seed)
        return tf.nn.experimental.general_dropout(
            inputs,
            rate=rate,
            noise_shape=random_module._get_concrete_noise_shape(inputs, noise_shape),
            uniform_sampler=RowGenerator(replica.rows, _seed(seed)).uniform,
        )

    return drawn


def other_numbers(keras_draw: Function) -> Function:
    """A generator of Keras's that cannot start in the middle: with another seed on each rank, if it draws for rows."""

    def drawn(*args: Any, **kwargs: Any) -> Any:
        replica = current_batch_replica()
        if replica is None:
            return keras_draw(*args, **kwargs)
        lead = args[0] if args else kwargs.get("shape", kwargs.get("logits"))
        length, static_shape = _length(lead)
        is_of_rows = first_row(replica.rows, tf.cast(length, tf.int64), static_shape) > 0
        step = replica.rank * _OTHER_NUMBERS_BY_RANK
        nested_calls.seed_step = tf.where(is_of_rows, step, 0)
        try:
            return keras_draw(*args, **kwargs)
        finally:
            nested_calls.seed_step = None

    return drawn


def stepped_seed(keras_cast: Function) -> Function:
    """Keras's `_cast_seed`, which all its generators hand their seed to; see `other_numbers`."""

    def _cast_seed(seed: Any) -> Any:
        seed = keras_cast(seed)
        return seed if nested_calls.seed_step is None else seed + nested_calls.seed_step

    return _cast_seed


def _length(lead: Any) -> tuple[Any, Any]:
    """Length of the first axis of what a generator is asked for, and its shape as far as it is known.

    It is asked by shape, or for one result for each row of logits.
    """
    if tf.is_tensor(lead):
        is_shape = lead.dtype.is_integer and lead.shape.rank == 1
        return (lead[0], _static(lead)) if is_shape else (tf.shape(lead)[0], lead.shape)
    if isinstance(lead, (tuple, list, tf.TensorShape)):
        shape = tf.stack([tf.cast(size, tf.int64) for size in lead]) if len(lead) else tf.ones([1], tf.int64)
        return shape[0], _static(shape)
    return len(lead), tf.TensorShape([len(lead)])
