"""Tensors over the memory of the script's own arrays, which nothing may write into.

    array of the script at a multiple of 64 bytes ─► from_generator, numpy_function ─► a tensor over the array's memory
    any other array                               ─► the same                       ─► a tensor with a copy

TensorFlow lets an operation put its result where an input lies that nobody else needs, but not into memory that is not
TensorFlow's. A slice of such a tensor does not know whose its memory is, and is written into. Paceline slices every
batch. So it first asks TensorFlow for tensors that TensorFlow may write into: `Snapshot` hands on its input where that
is so already, at no cost, and a copy otherwise.

A tensor over the array's memory also changes when the script fills the array again for its next batch, which it may do
while a step has yet to compute. Hence `read_at_once`.
"""

import functools
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.own_rows.staying_maps import BATCHES

_CALLS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})


def calls_python(dataset: Any) -> bool:
    """Whether some stage of a `tf.data.Dataset` is known to call Python."""
    return any(map(_calls_python, compat.with_sources(dataset)))


def may_be_foreign(dataset: Any) -> bool:
    """Whether the memory of the tensors of a `tf.data.Dataset` may be an array's of the script.

    All others stay as they are: those that a cache keeps, too, would be copied in each epoch.
    """
    if compat.kind_of(dataset) in BATCHES:  # rows are copied into new memory
        return False
    is_so = _calls_python(dataset) or _hides_stages(dataset)
    return is_so or any(map(may_be_foreign, compat.inputs_of(dataset)))


def _calls_python(one: Any) -> bool:
    return any(types & _CALLS for types in compat.operations_of_functions(one))


def _hides_stages(one: Any) -> bool:
    """Whether a stage reads a dataset that is known as a tensor only: nobody sees what that one calls."""
    return compat.kind_of(one) == "Variant" or any(tensor.dtype == tf.variant for tensor in compat.captured_by(one))


def own_memory(element: Any) -> Any:
    """`element`, tensors of a graph, in memory that TensorFlow may write into."""
    return tf.nest.map_structure(_owned, element, expand_composites=True)


def _owned(leaf: Any) -> Any:
    is_taken = tf.is_tensor(leaf) and _has_snapshot(leaf.dtype)
    return tf.raw_ops.Snapshot(input=leaf) if is_taken else leaf


@functools.cache
def _has_snapshot(dtype: Any) -> bool:
    """Whether TensorFlow can do so: not with text and the like, which are never an array's memory."""
    with tf.init_scope(), tf.device("CPU"):
        try:
            tf.raw_ops.Snapshot(input=tf.constant([], dtype))
        except (tf.errors.OpError, TypeError, ValueError):
            return False
        return True


def read_at_once(dataset: Any) -> Any:
    """Keras's dataset over a generator or a `PyDataset`, whose items are in own memory before the next one is made."""
    if compat.kind_of(dataset) == "Prefetch":  # in front of it
        [source] = compat.inputs_of(dataset)
        return read_at_once(source).prefetch(compat.read_ahead_of(dataset))

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def owned(*element: Any) -> Any:
        element = own_memory(element)
        return element if isinstance(dataset.element_spec, tuple) else element[0]

    options = tf.data.Options()
    options.experimental_optimization.map_parallelization = False  # the next item would be asked for meanwhile
    return dataset.map(owned).with_options(options)
