"""`paceline.explain`: what a step of `fit` would send and compute on several workers, found out in one process.

    model, data ─► the step, traced as for `fit`           (one_workers_step.py)
                ─► divided for a world that does not exist  (spmd/)
                ─► what was noted while it was divided      (spmd/account.py) ─► words (explanation.py)

Nothing is run: no step, no message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from paceline.comm.world import current_world
from paceline.data.batch_rows import describe_data, differing_rows, named_components
from paceline.data.own_rows.replicated import replicated_components
from paceline.fit.building import is_built_from
from paceline.fit.engine import engine_of
from paceline.fit.explanation import Explanation, explanation_of
from paceline.fit.followers_writer import traced_as_on_chief
from paceline.fit.one_workers_step import traced_step, users_line_in_step
from paceline.fit.whole_batches import batch_like
from paceline.fit.whole_steps import words_of
from paceline.spmd.decisions import Operation
from paceline.spmd.messages import Alone
from paceline.spmd.partition import Partitioner
from paceline.strategy.as_one_worker import as_one_worker

_FEWEST_WORKERS = 2


def explain(model: Any, data: Any, *, batch_size: int | None = None, workers: int | None = None) -> Explanation:
    """What a step of ``model.fit(data)`` sends and computes when workers divide it; `print` it.

        print(paceline.explain(model, dataset, workers=4))

    Works in plain Python, without a launcher. No step is run and no variable changes. A model that is not built yet is
    built for the shapes of the data, with its optimizer, as `fit` would do. No messages; in a job that `paceline run`
    has started, a model that is not built is to be explained on all ranks, or on none.

    Args:
        model: A compiled Keras model.
        data: What `fit` is given: a `tf.data.Dataset` of batches, arrays ``x``, ``(x, y)`` or
            ``(x, y, sample_weight)``, or one batch. Of a dataset, the first batch is read only where the dataset does
            not tell the sizes of its batches.
        batch_size: How many rows a batch of arrays has; None: the arrays are one batch.
        workers: How many workers divide the step, at least 2; None: those of this job if it has several, else 2.

    Returns:
        Messages and bytes of a step, the lines of code that need the rows of all workers, and which part of the work
        every worker computes for itself (estimated).

    Raises:
        ValueError: the model is not compiled, or runs eagerly, or in stages or with parameter servers; the data are
            empty, or no batches; fewer than 2 workers.
    """
    size = max(current_world().size, _FEWEST_WORKERS) if workers is None else workers
    if size < _FEWEST_WORKERS:
        raise ValueError(f"workers={workers}: expected at least {_FEWEST_WORKERS} [argument]")
    _check(model)
    batch = _of_dataset(data, batch_size) if isinstance(data, tf.data.Dataset) else _of_arrays(data, batch_size)
    with model.distribute_strategy.scope():
        is_built_from(model, batch.specs)  # if it cannot be, its step does so, or says what is wrong
    with as_one_worker(), traced_as_on_chief():
        traced = traced_step(model.train_step, batch.specs)
        partitioner = Partitioner(_NoMessages())
        num_rows = batch_like(batch.specs).num_rows
        try:
            partitioner.divided(traced, batch.are_rows, num_rows if num_rows != 1 else None).get_concrete_function()
        except Exception as fault:
            why = f"{words_of(fault)}; please report this"
            return Explanation("train_step", batch.num_rows, size, not_divided=why)
    costs = partitioner.account.costs(batch.num_rows, batch.shapes)
    return explanation_of(costs, "train_step", batch.num_rows, size, users_line_in_step)


def _check(model: Any) -> None:
    if not getattr(model, "compiled", False):
        raise ValueError(
            f"explain(model, data) got {type(model).__name__}, which is not a compiled Keras model: "
            "call model.compile(...) first, as before fit [argument]"
        )
    if model.run_eagerly:
        raise ValueError(
            "this model runs eagerly (run_eagerly=True), so its step has no graph that could be divided, and every "
            "worker would compute all rows: leave run_eagerly out of compile [whole-steps]"
        )
    if not engine_of(model).takes_steps_here:
        raise ValueError(
            "explain(model, data) is about steps of which workers divide the rows: this model trains under "
            f"{type(model.distribute_strategy).__name__}. Make it outside of the strategy's scope [argument]"
        )


@dataclass(frozen=True, eq=False)
class _Batch:
    """What is known of a batch.

    Args:
        specs: Of its components, as the step is traced for them.
        num_rows: Its rows.
        are_rows: For each flat tensor, whether its first dimension is rows.
        shapes: Of each flat tensor, as far as known.
    """

    specs: Any
    num_rows: int
    are_rows: list[bool]
    shapes: list[list[int]]


def _of_dataset(dataset: Any, batch_size: int | None) -> _Batch:
    if batch_size is not None:
        raise ValueError(f"batch_size={batch_size}: a tf.data.Dataset has batches of its own [argument]")
    described = describe_data(dataset)
    if described.is_never_batched:
        raise ValueError("this dataset gives single examples: add .batch(global_batch_size) [argument]")
    specs = dataset.element_spec
    leaves = tf.nest.flatten(specs)
    is_told = described.batch_size and all(_is_divided(leaf) and None not in leaf.shape[1:] for leaf in leaves)
    if dataset.cardinality() == 0 or not is_told:
        first = next(iter(dataset.take(1)), None)
        if first is None:
            raise _no_rows()
        return _batch(specs, first, described.batch_size, replicated_components(dataset))
    rows = described.batch_size or 0
    return _Batch(specs, rows, [True] * len(leaves), [[rows, *leaf.shape[1:]] for leaf in leaves])


def _of_arrays(data: Any, batch_size: int | None) -> _Batch:
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: expected at least 1 [argument]")
    if isinstance(data, keras.utils.PyDataset) or hasattr(data, "__next__"):
        raise ValueError(
            f"explain(model, data) takes a tf.data.Dataset, arrays or one batch, not {type(data).__name__}: "
            "give it one batch, such as data[0] or next(data) [argument]"
        )
    batch = keras.tree.map_structure(_as_fit_takes_it, data, none_is_leaf=False)
    pairs = [(name, tuple(leaf.shape)) for name, leaf in named_components(batch) if _is_divided(leaf)]
    if told := differing_rows([(name, shape) for name, shape in pairs]):
        raise ValueError(told)
    specs = keras.tree.map_structure(_spec_of, batch, none_is_leaf=False)
    return _batch(specs, batch, batch_size)


def _batch(specs: Any, first: Any, batch_size: int | None, replicated: Sequence[bool] = ()) -> _Batch:
    leaves = tf.nest.flatten(first)
    are_whole = replicated or [False] * len(leaves)
    with_rows = [leaf for leaf, is_whole in zip(leaves, are_whole, strict=True) if not is_whole]
    counts = [_rows_of(leaf) for leaf in with_rows if getattr(leaf, "shape", None) is not None and len(leaf.shape)]
    if not counts or not counts[0]:
        raise _no_rows()
    rows = batch_size or counts[0]
    are_rows: list[bool] = []
    shapes: list[list[int]] = []
    for leaf, spec, is_whole in zip(leaves, tf.nest.flatten(specs), are_whole, strict=True):
        # Rows of tensors that are no simple arrays are whole on every worker.
        if is_whole or not _is_divided(spec):
            parts = tf.nest.flatten(leaf, expand_composites=True)
            are_rows += [False] * len(parts)
            shapes += [list(part.shape) for part in parts]
        else:
            are_rows.append(True)
            shapes.append([rows, *leaf.shape[1:]])
    return _Batch(specs, rows, are_rows, shapes)


def _rows_of(leaf: Any) -> int:
    return int(leaf.dense_shape[0]) if isinstance(leaf, tf.SparseTensor) else int(leaf.shape[0])


def _is_divided(leaf: Any) -> bool:
    return (
        (isinstance(leaf, tf.TensorSpec) or tf.is_tensor(leaf))
        and not isinstance(leaf, tf.RaggedTensor | tf.SparseTensor)
        and bool(leaf.shape.rank)
    )


def _no_rows() -> ValueError:
    return ValueError("the data are empty: explain(model, data) needs a batch with at least one row [argument]")


def _as_fit_takes_it(leaf: Any) -> Any:
    """A tensor; floating arrays in Keras's default type, as `fit` casts them."""
    if tf.is_tensor(leaf) or isinstance(leaf, tf.RaggedTensor | tf.SparseTensor):
        return leaf
    array = np.asarray(leaf)
    return tf.convert_to_tensor(array, keras.config.floatx() if array.dtype.kind == "f" else None)


def _spec_of(leaf: Any) -> Any:
    return tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype) if _is_divided(leaf) else tf.type_spec_from_value(leaf)


class _NoMessages(Alone):
    """The messages of a rank in a world that does not exist, for a graph that nobody runs."""

    def sum(self, addends: Sequence[Any]) -> list[Any]:
        """Tensors as the sums would be."""
        return [tf.identity(one) for one in addends]

    def gather(self, parts: Sequence[tuple[Any, int]]) -> list[Any]:
        """Tensors as the rows of all would be."""
        return [tf.identity(one) for one, _ in parts]

    def called(self, op: Operation, inputs: Sequence[Any]) -> list[Any]:
        """Tensors as Python's would be."""
        del inputs
        return [tf.compat.v1.placeholder(output.dtype) for output in op.outputs] or [tf.no_op()]
