"""Keras's batches of arrays, of which a rank gathers its own rows only. The order of the rows stays plain Keras's.

    indices of a global batch, [5 2 8 1] ─┐
    the arrays, whole, again and again   ─┴ zip ─► map: the rows of the arrays at the indices ─► prefetch

The indices of the rank's rows are chosen before the map.
"""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.fingerprint import FingerprintLog
from paceline.data.own_rows.division import AnyDivision, alike
from paceline.data.own_rows.orders import behind_identities
from paceline.data.own_rows.share_table import ShareTable, cut_of


@dataclass(frozen=True, slots=True)
class ArrayDivision(AnyDivision):
    """Rows are chosen before they are gathered."""

    gather: Any
    """The map stage that takes indices and arrays."""
    sources: tuple[int, ...]
    """Of each component of a batch, the number of the array that its rows are of."""
    prefetches: tuple[Any, ...]
    """Stages behind, in this order."""
    stays = ""
    form = "own indices 1"
    work = "each rank gathers and computes its rows of each batch"

    def batches(
        self, dataset: Any, rank: int, size: int, log: FingerprintLog | None, table: ShareTable | None = None
    ) -> Any:
        """See `AnyDivision`: for fingerprints, global batches are gathered whole."""
        gather = self.gather
        spec = gather.element_spec
        [source] = compat.inputs_of(gather)

        def gathered(arrays: Any, indices: Any) -> list[Any]:
            return [tf.gather(arrays[number], indices) for number in self.sources]

        # No Python `if` in it depends on a tensor.
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def chosen(number: Any, element: Any) -> Any:
            indices, *arrays = tf.nest.flatten(element)
            noted = []
            if log is not None:
                noted = [log.note(number, (), lambda: gathered(arrays, indices), by_row=True)]
            with tf.control_dependencies(noted):
                static = indices.shape[0]
                cut = cut_of(table, number, rank, size)
                begin, end = cut(tf.shape(indices)[0] if static is None else static)
                return tf.nest.pack_sequence_as(spec, gathered(arrays, indices[begin:end]))

        own = source.enumerate().map(chosen, **compat.options_of_map(gather))
        for one in self.prefetches:
            own = own.prefetch(compat.read_ahead_of(one))
        return alike(own, dataset)


def array_division_of(dataset: Any) -> ArrayDivision | None:
    """The parts of a dataset that Keras has made of arrays; None: it is another one, or holds sparse arrays."""
    prefetches, one = [], dataset
    while (kind := compat.kind_of(one)) in ("Prefetch", "Options"):
        prefetches += [one] if kind == "Prefetch" else []
        [one] = compat.inputs_of(one)
    if kind != "ParallelMap":
        return None
    [source] = compat.inputs_of(one)
    if compat.kind_of(source) != "Zip":
        return None
    indices, *others = compat.inputs_of(source)
    if len(others) != 1 or not _is_one_element_again_and_again(others[0]):
        return None
    spec, leaves = indices.element_spec, tf.nest.flatten(others[0].element_spec)
    are_indices = isinstance(spec, tf.TensorSpec) and spec.dtype.is_integer and spec.shape.rank == 1
    if not (are_indices and all(isinstance(leaf, tf.TensorSpec) for leaf in leaves)):
        return None
    if not all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank for leaf in tf.nest.flatten(one.element_spec)):
        return None
    sources = _gathered_from(one)
    return None if sources is None else ArrayDivision(one, sources, tuple(reversed(prefetches)))


def _gathered_from(dataset: Any) -> tuple[int, ...] | None:
    """The argument of a map, less one, that each of its results has the rows of; None if it does something else."""
    function = compat.traced_function_of(dataset)
    if function is None or function.captured_inputs:
        return None
    arguments = [tensor.name for tensor in function.inputs]
    found = []
    for tensor in function.outputs:
        gather = behind_identities(tensor).op
        if gather.type != "GatherV2" or gather.get_attr("batch_dims") != 0:
            return None
        params, indices, axis = map(behind_identities, gather.inputs)
        of_axis_0 = tf.get_static_value(axis) is not None and int(tf.get_static_value(axis)) == 0
        if not (of_axis_0 and indices.name == arguments[0] and params.name in arguments[1:]):
            return None
        found.append(arguments.index(params.name) - 1)
    return tuple(found)


def _is_one_element_again_and_again(dataset: Any) -> bool:
    if compat.kind_of(dataset) != "Repeat":
        return False
    [source] = compat.inputs_of(dataset)
    return compat.kind_of(source) == "Tensor"
