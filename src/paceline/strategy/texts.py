"""Text over ranks: what carries tensors carries numbers, so text travels as its bytes and their lengths.

["ab", "", "xyz"]  ──►  lengths [2, 0, 3], bytes [97 98 120 121 122]  ──►  those of all ranks  ──►  text again
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def gathered_text(all_gather: Callable[[Any], Any], texts: Any) -> Any:
    """The ranks' texts one below the other. Collective.

    Args:
        all_gather: Of numeric tensors, along the first axis.
        texts: A string tensor of at least one dimension; ranks may differ in the size of the first one only.
    """
    joined = tf.strings.reduce_join(tf.reshape(texts, [-1]))
    lengths = all_gather(tf.strings.length(texts))
    octets = all_gather(tf.io.decode_raw(joined, tf.uint8))
    every_octet = tf.constant([bytes([octet]) for octet in range(256)])
    num_octets = tf.reshape(lengths, [-1])
    places = tf.range(tf.size(num_octets))
    characters = tf.gather(every_octet, tf.cast(octets, tf.int32))
    flat = tf.strings.unsorted_segment_join(characters, tf.repeat(places, num_octets), tf.size(num_octets))
    return tf.reshape(flat, tf.shape(lengths))


def broadcast_text(all_gather: Callable[[Any], Any], rank: int, texts: Any) -> Any:
    """The chief's texts on every rank. Collective.

    Args:
        all_gather: Of numeric tensors, along the first axis.
        rank: This rank.
        texts: A string tensor of any shape, equal on all ranks.
    """
    flat = tf.reshape(texts, [-1])
    return tf.reshape(gathered_text(all_gather, flat if rank == 0 else flat[:0]), tf.shape(texts))
