"""How values of any dtype travel through TensorFlow's collective operations, which take few.

What can be reduced as it is stays; small integers travel as larger ones, complex numbers as pairs. What is only moved
travels as 32-bit words, padded to a *size class* where the number of bytes changes from call to call.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.comm.group import Reduction, check_defined

_MERGES = {Reduction.SUM: "Add", Reduction.MIN: "Min", Reduction.MAX: "Max"}
_WORD_BYTES = 4
_FINEST_OCTAVE = 3
"""Each doubling of a size is cut in 2 to the power of this steps."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """How values of one dtype are reduced."""

    dtype: Any
    load: Callable[[Any], Any]
    """From a 1-D tensor of values to a 1-D tensor of `dtype`."""
    unload: Callable[[Any], Any]


def carrier_of(dtype: Any, reduction: Reduction) -> tuple[Carrier, str]:
    """How values of `dtype` are reduced, and TensorFlow's name of the operation on the carriers."""
    merge = _MERGES[reduction]
    if dtype in (tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64):
        return Carrier(dtype, tf.identity, tf.identity), merge
    if dtype == tf.bool:  # NumPy's sum of truth values is "any"
        return _cast_to(tf.int32, dtype), "Max" if reduction is Reduction.SUM else merge
    if dtype in (tf.int8, tf.uint8, tf.int16, tf.uint16):
        return _cast_to(tf.int32, dtype), merge
    if dtype == tf.uint32:
        return _cast_to(tf.int64, dtype), merge
    if dtype == tf.uint64:
        # Sums are the same bits with and without a sign; for the order of signed numbers the highest bit is turned.
        turned = tf.constant(0 if reduction is Reduction.SUM else tf.int64.min, tf.int64)
        return Carrier(
            tf.int64,
            lambda values: tf.bitwise.bitwise_xor(tf.bitcast(values, tf.int64), turned),
            lambda values: tf.bitcast(tf.bitwise.bitwise_xor(values, turned), tf.uint64),
        ), merge
    check_defined(reduction, [np.empty(0, dtype.as_numpy_dtype)])
    if dtype.is_complex:
        return Carrier(
            dtype.real_dtype,
            lambda values: tf.reshape(tf.stack([tf.math.real(values), tf.math.imag(values)], -1), [-1]),
            lambda values: tf.complex(values[0::2], values[1::2]),
        ), merge
    raise TypeError(f"received a tensor of {dtype.name} to reduce; expected numbers that TensorFlow can add. [dtype]")


def _cast_to(carrier: Any, dtype: Any) -> Carrier:
    return Carrier(carrier, lambda values: tf.cast(values, carrier), lambda values: tf.cast(values, dtype))


def words_for(num_bytes: Any) -> Any:
    """How many words hold so many bytes; at least one."""
    return tf.maximum(tf.constant(1, tf.int64), -(-num_bytes // _WORD_BYTES))


def size_class(num_bytes: Any) -> Any:
    """As `words_for`, rounded up by an eighth at most: so few different sizes that each can be remembered for ever."""
    words = words_for(num_bytes)
    octave = tf.cast(tf.math.log(tf.cast(words, tf.float64)) / math.log(2.0) + 1e-10, tf.int64)
    step = tf.bitwise.left_shift(tf.constant(1, tf.int64), tf.maximum(octave - _FINEST_OCTAVE, 0))
    return -(-words // step) * step


def to_words(tensors: Sequence[Any], num_words: Any) -> Any:
    """The bytes of the tensors, one after the other, as `num_words` int32, zeros at the end."""
    flat = [tf.reshape(tf.cast(one, tf.uint8) if one.dtype == tf.bool else one, [-1]) for one in tensors]
    joined = tf.concat([tf.reshape(tf.bitcast(one, tf.uint8), [-1]) for one in flat], 0)
    padding = num_words * _WORD_BYTES - tf.size(joined, tf.int64)
    padded = tf.pad(joined, [[0, padding]])
    return tf.bitcast(tf.reshape(padded, [-1, _WORD_BYTES]), tf.int32)


def from_words(words: Any, kinds: Sequence[tuple[Any, Any]]) -> list[Any]:
    """The tensors, by dtype and shape, of which `to_words` made `words`."""
    joined = tf.reshape(tf.bitcast(words, tf.uint8), [-1])
    lengths = [tf.reduce_prod(shape) * dtype.size for dtype, shape in kinds]
    *parts, _ = tf.split(joined, [*lengths, tf.size(joined, tf.int64) - tf.add_n(lengths)])
    tensors = []
    for part, (dtype, shape) in zip(parts, kinds, strict=True):
        if dtype == tf.bool:
            values = tf.cast(part, tf.bool)
        elif dtype.size == 1:
            values = tf.bitcast(part, dtype)
        else:
            values = tf.bitcast(tf.reshape(part, [-1, dtype.size]), dtype)
        tensors.append(tf.reshape(values, shape))
    return tensors
