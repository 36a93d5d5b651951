"""Variables of layers that have no value until it is known whose stage they are of.

    layer.add_weight in the scope of a PipelineStrategy     the variable keeps its initializer, and has no value
    the model is divided into stages                        this stage's get their values: those of plain Keras
                                                            those of other stages never get one: reading one raises

Keras's initializers draw from a seed of their own, which they have from the moment that they are made. So a value is
the same, whenever it is drawn. Any other initializer is called at once, as Keras would call it: it may draw from a
generator that others draw from, too. Such a variable loses its value again if it is another stage's.

Layers only: metrics, optimizers and seed generators make their variables by other means.
"""

import contextlib
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from paceline.pipeline import compat
from paceline.strategy.per_thread import PerThread

Function = Callable[..., Any]


_defers = PerThread(False)
"""Whether this thread makes variables without values: a layer makes a weight in the scope of a `PipelineStrategy`."""


def without_values() -> contextlib.AbstractContextManager[None]:
    """While this lasts, this thread makes variables without values, and gives none to those that have none."""
    return _defers.replaced(True)


@contextlib.contextmanager
def read_through(variable: Any, fetch: Function) -> Iterator[None]:
    """While this lasts, reading a variable calls `fetch` with its shape and dtype, each time."""
    before = variable._value, variable._initializer
    variable._value, variable._initializer = None, fetch
    try:
        yield
    finally:
        variable._value, variable._initializer = before


def initialized(keras_initialize: Function) -> Function:
    """Keras's `Variable._initialize_with_initializer`, which leaves a layer's variable for later."""

    def _initialize_with_initializer(self: Any, initializer: Function) -> None:
        if _defers.value and _draws_alike_at_any_time(initializer):
            self._initializer, self._value = _Later(self, initializer), None
        else:
            keras_initialize(self, initializer)

    return _initialize_with_initializer


def assigned(keras_assign: Function) -> Function:
    """Keras's `Variable._direct_assign`: what has no value yet gets one first; another stage's is assigned there."""

    def _direct_assign(self: Any, value: Any) -> None:
        if self._value is None:
            if is_elsewhere(self) or _defers.value:
                return  # all ranks run the same script
            materialize([self])
        keras_assign(self, value)

    return _direct_assign


def got(keras_get_weights: Function) -> Function:
    """Keras's `Layer.get_weights`: of another stage's weights it tells where they are."""

    def get_weights(self: Any) -> list[Any]:
        if not any(map(is_elsewhere, self.weights)):
            return keras_get_weights(self)  # type: ignore[no-any-return]
        return [RemoteWeight(one) if is_elsewhere(one) else one.numpy() for one in self.weights]

    return get_weights


def given_back(keras_set_weights: Function) -> Function:
    """Keras's `Layer.set_weights`: each stage takes its own."""

    def set_weights(self: Any, weights: list[Any]) -> None:
        own = self.weights
        if len(own) != len(weights) or not any(map(is_elsewhere, own)):
            keras_set_weights(self, weights)
            return
        for variable, value in zip(own, weights, strict=True):
            if not is_elsewhere(variable):
                variable.assign(value)

    return set_weights


def materialize(variables: Iterable[Any]) -> None:
    """Draws the initial values of those that have none yet."""
    for variable in variables:
        if variable._value is None:
            variable._initializer = variable._initializer.initializer
            variable._deferred_initialize()


def release_value(variable: Any, stage: int, own_stage: int, rank: int, *, returns: bool = False) -> None:
    """From now on a variable of `stage` has no value here, on `rank`, which is of `own_stage`.

    Args:
        variable: Which one.
        stage: That has it.
        own_stage: This one.
        rank: This one.
        returns: Whether graphs of this rank have read it, and will be run again: its memory is not freed.
    """
    value, variable._value = variable._value, None
    variable._initializer = _Elsewhere(variable.path, stage, own_stage, rank, value if returns else None)


def return_value(variable: Any, value: Any) -> None:
    """Gives a variable that was elsewhere a value here, which graphs that have read the variable before read, too."""
    variable._value = variable._initializer.value_before
    if variable._value is None:
        variable._initializer = lambda _, dtype: tf.constant(value, dtype)
        variable._deferred_initialize()
    else:
        variable._initializer = None
        variable._direct_assign(tf.constant(value))


def is_elsewhere(variable: Any) -> bool:
    """Whether it is another stage's."""
    return isinstance(getattr(variable, "_initializer", None), _Elsewhere)


class RemoteWeight(dict[str, Any]):
    """Stands for a weight of another stage in `get_weights`, and `set_weights` takes it back; its value is not here.

    A dictionary, which a snapshot can hold: `keras.callbacks.EarlyStopping` keeps weights.

    Args:
        variable: The weight.
    """

    def __init__(self, variable: Any) -> None:
        super().__init__(path=variable.path, stage=variable._initializer.stage)
        self.shape, self.dtype = variable.shape, variable.dtype
        self._variable = variable

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refused, as for the variable.

        Raises:
            RuntimeError: always.
        """
        return self._variable.numpy()


class _Later:
    """Takes an initializer's place until the variable has a value. Keras calls it to read the variable.

    Args:
        variable: Gets its value when it is first read, other than to infer shapes.
        initializer: Keras's.
    """

    def __init__(self, variable: Any, initializer: Function) -> None:
        self._variable = weakref.ref(variable)
        self.initializer = initializer

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        if compat.in_symbolic_scope():
            return self.initializer(shape, dtype=dtype)
        variable = self._variable()
        assert variable is not None  # it reads itself
        materialize([variable])
        return variable._value


class _Elsewhere:
    """Takes an initializer's place: Keras calls it to read the variable."""

    def __init__(self, path: str, stage: int, own_stage: int, rank: int, value_before: Any) -> None:
        self._path, self.stage, self._own_stage, self._rank = path, stage, own_stage, rank
        self.value_before = value_before

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        if compat.in_symbolic_scope():
            return tf.zeros(shape, dtype)
        if _defers.value:  # an optimizer makes a slot without a value, and looks where this variable is
            return types.SimpleNamespace(_unique_id=self._path)
        raise RuntimeError(
            f"the variable {self._path!r} is on stage {self.stage} of the pipeline, but this process is rank "
            f"{self._rank}, on stage {self._own_stage}, and has no value of it. Each rank holds the weights of its own "
            "stage only: train, evaluate and predict with the model's methods, and save the whole model with "
            "model.save(path), which all ranks call. [other-stage]"
        )


def _draws_alike_at_any_time(initializer: Any) -> bool:
    is_keras = type(initializer).__module__.split(".")[0] == "keras" and isinstance(initializer, keras.Initializer)
    return is_keras and isinstance(getattr(initializer, "seed", 0), int)
