"""How much an iterator over a dataset holds in memory: an estimate, made before anybody asks it to write that down."""

from typing import Any

import tensorflow as tf

from paceline.data.sources import with_sources

_BYTES_OF_TEXT = 64
_ENDLESS = 1 << 62


def estimated_state_bytes(dataset: Any) -> int:
    """About how large the state of an iterator over `dataset` gets: its shuffle buffers and caches.

    Unknown sizes count as one, datasets inside an interleave not at all: a lower bound.
    """
    return sum(map(_held, with_sources(dataset)))


def _held(dataset: Any) -> int:
    kind = type(dataset).__name__
    if "Shuffle" in kind and hasattr(dataset, "_buffer_size"):
        elements = int(dataset._buffer_size)
        cardinality = _cardinality(dataset)
        return min(elements if elements > 0 else _ENDLESS, cardinality) * _bytes_of(dataset.element_spec)
    if "Cache" in kind:
        cardinality = _cardinality(dataset)
        return 0 if cardinality == _ENDLESS else cardinality * _bytes_of(dataset.element_spec)
    return 0


def _cardinality(dataset: Any) -> int:
    number = int(dataset.cardinality())
    return number if number >= 0 else _ENDLESS


def _bytes_of(spec: Any) -> int:
    total = 0
    for leaf in tf.nest.flatten(spec):
        shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
        if shape is None or dtype is None or shape.rank is None:
            continue
        elements = 1
        for size in shape:
            elements *= size or 1
        total += elements * (_BYTES_OF_TEXT if dtype == tf.string else dtype.size)
    return total
