"""Does chance decide which element of a dataset gets which random number? Asked only when ranks read different batches.

A random operation numbers its draws as they come, and the threads of a parallel map come in any order. The operations
are looked for in the functions that the dataset was built of: nothing is read.
"""

import re
from collections.abc import Iterable
from typing import Any

from paceline.data.sources import operations_of_functions, with_sources

_DRAWS = re.compile(
    "Random(?!Dataset|SeedGenerator|IndexShuffle)|TruncatedNormal|ParameterizedTruncatedNormal|Multinomial"
    "|Stateful(?!PartitionedCall)|RngReadAndSkip|SampleDistortedBoundingBox|(Eager)?PyFunc|Assign.*VariableOp"
)
"""Types of operations that draw from a state of TensorFlow's, may draw from one of Python's, or count (as Keras's
augmentation layers do, for a seed)."""

_PARALLEL = re.compile("_?(Legacy)?(Parallel(Map|Interleave)|MapAndBatch)")
"""Types of datasets, as classes and as operations, that call their function in several threads."""


def draws_by_chance(dataset: Any) -> bool:
    """Whether a parallel map or interleave somewhere in a `tf.data.Dataset` draws, or calls Python, which may draw."""
    return any(_is_parallel_draw(one, types) for one in with_sources(dataset) for types in operations_of_functions(one))


def _is_parallel_draw(dataset: Any, types: Iterable[str]) -> bool:
    # Datasets inside a function (of a flat_map) are operations there.
    is_parallel = any(map(_PARALLEL.match, [type(dataset).__name__, *types]))
    return is_parallel and any(map(_DRAWS.match, types))
