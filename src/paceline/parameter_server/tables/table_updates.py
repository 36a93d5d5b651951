"""How an optimizer updates variables on parameter servers: its own code, run on parts of them.

    gradient of a table ─► clipped ─► of each shard ─┬─ ROWS    the rows that it names, as a small table on the server
    gradient of a divided kernel ────────────────────┼─ SHARDS  each shard as a variable of its own, on its server
                                                     └─ WHOLE   all shards as one variable, on the worker

While the optimizer's step is traced, the lists in which it keeps its variables have parts in the places of the
variables that are updated so: of the variable itself, and of what the optimizer keeps beside it. Which mode gives the
numbers of a variable in one piece depends on the optimizer, and is tried out (`update_mode_probe.py`). ROWS are taken
where they do, and where the user wants them (`lazy_rows`).
"""

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Any

import keras
import tensorflow as tf

from paceline.fit import compat
from paceline.parameter_server.tables.row_lookup import is_on_servers
from paceline.parameter_server.tables.sharded_weights import is_divided, shards_of, whole_of
from paceline.parameter_server.tables.table_gradients import divided
from paceline.parameter_server.tables.variable_views import FullView, RowView, VariableView
from paceline.strategy.parameter_server import ParameterServerStrategy
from paceline.strategy.per_thread import PerThread

_LOGGER = logging.getLogger("paceline")

Function = Callable[..., Any]

LARGE_BYTES = 100e6
"""From this size on it is worth a warning that all rows of a table are read and written in each step."""


class UpdateMode(Enum):
    """How a variable is updated."""

    ROWS = "rows"
    SHARDS = "shards"
    WHOLE = "whole"


class NotInPartsError(Exception):
    """An optimizer keeps something beside a variable that cannot be divided as the variable is: try another mode."""


_forced_mode = PerThread[UpdateMode | None](None)
_warned: "weakref.WeakKeyDictionary[Any, set[str]]" = weakref.WeakKeyDictionary()


def forced(mode: UpdateMode) -> AbstractContextManager[None]:
    """While this lasts, optimizers update divided variables, and those with sparse gradients, in this mode."""
    return _forced_mode.replaced(mode)


def applied(keras_apply: Function, exact_modes: Callable[[Any], frozenset[UpdateMode]]) -> Function:
    """Keras's `_backend_apply_gradients` of optimizers: clips, decays, updates, averages.

    Args:
        keras_apply: Keras's own.
        exact_modes: Which modes give an optimizer the numbers of a variable in one piece.
    """

    def _backend_apply_gradients(self: Any, grads: Sequence[Any], trainable_variables: Sequence[Any]) -> None:
        strategy = self._distribution_strategy
        has_tables = any(_is_table(*pair) for pair in zip(grads, trainable_variables, strict=True))
        if not has_tables or (_forced_mode.value is None and not isinstance(strategy, ParameterServerStrategy)):
            keras_apply(self, grads, trainable_variables)
            return
        with contextlib.ExitStack() as meanwhile:
            if not self.gradient_accumulation_steps:  # else Keras clips the sums, which are in parts by then
                grads = self._clip_gradients(grads)
                meanwhile.enter_context(_in_place_of(self, dict.fromkeys(("clipnorm", "clipvalue", "global_clipnorm"))))
            parts: dict[int, list[Any]] = {}
            makers: dict[int, Function] = {}
            new_grads, new_variables = [], []
            for grad, variable in zip(grads, trainable_variables, strict=True):
                mode = _forced_mode.value or _mode(self, grad, variable, strategy, exact_modes)
                if mode is None or not _is_table(grad, variable):
                    new_grads.append(grad)
                    new_variables.append(variable)
                    continue
                own_grads, make = _in_parts(grad, variable, mode)
                place = self._get_variable_index(variable)
                makers[place], parts[place] = make, make(variable)
                new_grads += own_grads
                new_variables += parts[place]
            meanwhile.enter_context(_in_place_of(self, _lists_in_parts(self, makers, parts)))
            keras_apply(self, new_grads, new_variables)

    return _backend_apply_gradients


def _is_table(grad: Any, variable: Any) -> bool:
    if is_divided(variable):
        return True
    return isinstance(grad, tf.IndexedSlices) and (is_on_servers(variable) or _forced_mode.value is not None)


def _mode(
    optimizer: Any, grad: Any, variable: Any, strategy: ParameterServerStrategy, exact_modes: Function
) -> UpdateMode | None:
    """How `variable` is updated; None: as Keras does it."""
    if not _is_table(grad, variable):
        return None
    exact = exact_modes(optimizer)
    is_sparse = isinstance(grad, tf.IndexedSlices)
    if is_sparse and (UpdateMode.ROWS in exact or (strategy.lazy_rows and not optimizer.gradient_accumulation_steps)):
        if UpdateMode.ROWS not in exact and optimizer.use_ema:
            raise ValueError(
                f"lazy_rows updates only the rows of {variable.path} that a step looks up, but use_ema averages all "
                "rows in each step, and the average of a row that was not looked up would be 0. Make the optimizer "
                "without use_ema, or the strategy without lazy_rows. [lazy-rows]"
            )
        return UpdateMode.ROWS
    _warn_if_large(optimizer, variable, is_sparse=is_sparse)
    if not is_divided(variable):
        return None
    return UpdateMode.SHARDS if UpdateMode.SHARDS in exact else UpdateMode.WHOLE


def _warn_if_large(optimizer: Any, variable: Any, *, is_sparse: bool) -> None:
    num_bytes = float(tf.as_dtype(variable._dtype).size) * float(tf.TensorShape(variable.shape).num_elements() or 0)
    told = _warned.setdefault(optimizer, set())
    if num_bytes < LARGE_BYTES or variable.path in told:
        return
    told.add(variable.path)
    name, size = type(optimizer).__name__, f"{variable.path} ({num_bytes / 1e6:.0f} MB)"
    if not is_sparse:
        _LOGGER.warning("every step reads and writes all of %s, because its gradient is not sparse.", size)
    elif optimizer.gradient_accumulation_steps:
        _LOGGER.warning(
            "every step reads and writes all rows of %s, because %s accumulates gradients of several steps, which look "
            "up other rows. Make it without gradient_accumulation_steps.",
            size,
            name,
        )
    else:
        _LOGGER.warning(
            "every step reads and writes all rows of %s, because %s with these settings also changes the rows that no "
            "step looks up. ParameterServerStrategy(lazy_rows=True) updates only the rows that a step looks up, with "
            "slightly other results; keras.optimizers.Adagrad does so by itself (docs/parameter_servers.md).",
            size,
            name,
        )


def _in_parts(grad: Any, variable: Any, mode: UpdateMode) -> tuple[list[Any], Function]:
    """The gradients of the parts of `variable`, and what makes the parts of a variable that is divided alike."""
    if mode is UpdateMode.WHOLE:
        return [grad], lambda own: [FullView(own)] if is_divided(own) else [own]
    grads = divided(grad, variable)
    if mode is UpdateMode.SHARDS or not isinstance(grad, tf.IndexedSlices):
        return grads, lambda own: shards_of(own) or [own]
    ids, local = [], []
    for own, shard in zip(grads, shards_of(variable) or [variable], strict=True):
        with tf.device(_device_of(shard)):  # each server finds its own rows: what crosses the network is ids and rows
            unique, places = tf.unique(tf.cast(own.indices, tf.int64))
            row_shape = tf.constant(tuple(variable.shape[1:]), tf.int64)
            shape = tf.concat([tf.size(unique, tf.int64)[None], row_shape], 0)
        ids.append(unique)
        local.append(tf.IndexedSlices(own.values, places, shape))
    return local, lambda own: [RowView(part, rows) for part, rows in zip(shards_of(own) or [own], ids, strict=True)]


def _device_of(variable: Any) -> str | None:
    device: str | None = variable._value.device if is_on_servers(variable) else None
    return device


def _lists_in_parts(
    optimizer: Any, makers: Mapping[int, Function], parts: Mapping[int, Sequence[Any]]
) -> dict[str, Any]:
    """The attributes in which `optimizer` keeps variables, by name, with parts in the places of some.

    Raises:
        NotInPartsError: what it keeps beside a variable has another shape, and the variable is in several parts.
    """
    trained = compat.trained_variables(optimizer)

    def in_parts(variables: Sequence[Any]) -> list[Any]:
        result = []
        for place, variable in enumerate(variables):
            if place not in makers:
                result.append(variable)
            elif variable is trained[place]:
                result += parts[place]
            elif variable is None:
                result += [None] * len(parts[place])
            elif tuple(variable.shape) == tuple(trained[place].shape) or isinstance(parts[place][0], FullView):
                result += makers[place](variable)
            else:
                raise NotInPartsError(f"{variable.path} has the shape {tuple(variable.shape)}")
        return result

    lists: dict[str, Any] = {
        name: in_parts(value)
        for name, value in vars(optimizer).items()
        if name != compat.ALL_OF_OPTIMIZER
        and isinstance(value, list)
        and len(value) == len(trained)
        and all(entry is None or isinstance(entry, keras.Variable) for entry in value)
    }
    lists[compat.PLACES] = {optimizer._var_key(variable): place for place, variable in enumerate(lists[compat.TRAINED])}
    return lists


@contextmanager
def _in_place_of(owner: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    """While this lasts, `owner` has these attributes; past `__setattr__`, by which Keras and TensorFlow track them."""
    present = vars(owner)
    before = {name: present[name] for name in attributes}
    present.update(attributes)
    try:
        yield
    finally:
        present.update(before)


# What Keras's optimizers do through `tf.distribute`, which takes no parts of variables.


def updated(keras_update: Function) -> Function:
    """Keras's `_distributed_tf_update_step`: calls the optimizer's own `update_step`."""

    def _distributed_tf_update_step(self: Any, distribution: Any, grads_and_vars: Any, learning_rate: Any) -> None:
        pairs = list(grads_and_vars)
        for grad, variable in pairs:
            if isinstance(variable, VariableView):
                with tf.device(variable.device):
                    self.update_step(grad, variable, learning_rate)
        others = [(grad, variable) for grad, variable in pairs if not isinstance(variable, VariableView)]
        keras_update(self, distribution, others, learning_rate)

    return _distributed_tf_update_step


def decayed(keras_decay: Function) -> Function:
    """Keras's `_apply_weight_decay`."""

    def _apply_weight_decay(self: Any, variables: Sequence[Any]) -> None:
        others = [
            variable for variable in variables if not isinstance(variable, VariableView) and not is_divided(variable)
        ]
        if len(others) == len(variables) or self.weight_decay is None:
            keras_decay(self, variables)
            return
        for variable in variables:
            if isinstance(variable, VariableView) and self._use_weight_decay(variable):
                with tf.device(variable.device):
                    rate = tf.cast(self.learning_rate, variable.dtype)
                    variable.assign_sub(variable * tf.cast(self.weight_decay, variable.dtype) * rate)
        keras_decay(self, others)

    return _apply_weight_decay


def decays(keras_uses: Function) -> Function:
    """Keras's `_use_weight_decay`: a part of a variable is excluded if the variable is."""

    def _use_weight_decay(self: Any, variable: Any) -> Any:
        return keras_uses(self, whole_of(variable.of if isinstance(variable, VariableView) else variable))

    return _use_weight_decay


def overwritten(keras_overwrite: Function) -> Function:
    """Keras's `_overwrite_model_variables_with_average_value`, at the end of a `fit` and every so many steps."""

    def _overwrite_model_variables_with_average_value(self: Any, variables: Sequence[Any]) -> None:
        if any(isinstance(variable, VariableView) or is_divided(variable) for variable in variables):
            compat.BaseOptimizer._overwrite_model_variables_with_average_value(self, variables)
        else:
            keras_overwrite(self, variables)

    return _overwrite_model_variables_with_average_value


def accumulated(keras_increment: Function) -> Function:
    """Keras's `_backend_increment_gradient_accumulators`, between two updates of an optimizer that sums gradients."""

    def _backend_increment_gradient_accumulators(self: Any, grads: Sequence[Any], acc_grads: Sequence[Any]) -> None:
        if any(isinstance(sum_, VariableView) for sum_ in acc_grads):
            compat.BaseOptimizer._backend_increment_gradient_accumulators(self, grads, acc_grads)
        else:
            keras_increment(self, grads, acc_grads)

    return _backend_increment_gradient_accumulators
