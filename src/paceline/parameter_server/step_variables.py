"""Variables of one step, in place of those that every step changes: sums of metrics, states of random generators.

On parameter servers such variables would cost a message for each read and each update, and a metric that assigns what
it has read would lose rows. So they lie on the chief, and a step has variables of its own in their place:

    a metric's sums          begin at zero; what a step has added comes back and is added on the chief
    a generator's state      begins at what the chief sends with the step
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from paceline.strategy.compat import ON_SERVERS, BaseResourceVariable, ResourceVariable

_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
"""TensorFlow's name for a resource that each execution of `VarHandleOp` makes anew (`ResourceHandle::ANONYMOUS_NAME`).
"""
_SAME_VALUE = frozenset({"Identity", "Cast", "StopGradient", "Reshape"})


class StepVariable(BaseResourceVariable):  # type: ignore[misc]  # a TensorFlow class, untyped
    """A variable that the graph of a step makes, and that is gone after the step.

    Args:
        like: The Keras variable that it stands in for.
        initial: Its first value.
        additions: Is told of every assignment.
    """

    def __init__(self, like: Any, initial: Any, additions: "Additions") -> None:
        value = like._value
        handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=_ANONYMOUS)
        self._like = like
        self._additions: Additions | None = None
        super().__init__(
            trainable=False,
            shape=value.shape,
            dtype=value.dtype,
            handle=handle,
            name=like.name,
            handle_name=like.name,
            unique_id=f"{like.name}_{id(self)}",
            in_graph_mode=False,
        )
        self.assign(initial)
        self._additions = additions
        additions.handles.append(handle)

    def assign(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        """As TensorFlow's."""
        if self._additions is not None:
            self._additions.note(self._like, self._additions.is_addition(self.handle, tf.convert_to_tensor(value)))
        return super().assign(value, *args, **kwargs)

    def assign_add(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        """As TensorFlow's."""
        return self._added(super().assign_add, delta, *args, **kwargs)

    def assign_sub(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        """As TensorFlow's."""
        return self._added(super().assign_sub, delta, *args, **kwargs)

    def _added(self, assign: Any, delta: Any, *args: Any, **kwargs: Any) -> Any:
        assert self._additions is not None
        delta = tf.convert_to_tensor(delta, self.dtype)
        self._additions.note(self._like, self._additions.is_independent(delta))
        return assign(delta, *args, **kwargs)

    def destroy(self) -> None:
        """After all that has been built so far: frees what it holds."""
        tf.raw_ops.DestroyResourceOp(resource=self.handle, ignore_lookup_error=True)


class Additions:
    """Whether the variables of a step are only added to, by what does not depend on them.

    Then what a step has added to zero may be added to any other value. What is not proven counts as no addition.
    """

    def __init__(self) -> None:
        self.handles: list[Any] = []
        """Of all variables of the step."""
        self.assigned_otherwise: dict[int, Any] = {}
        """Keras variables to which something else has happened, by identity."""
        self._independent: set[int] = set()
        self._kept: list[Any] = []
        """The operations in it, so that no other gets the identity of one."""

    def note(self, variable: Any, is_addition: bool) -> None:
        """`variable` is assigned."""
        if not is_addition:
            self.assigned_otherwise[id(variable)] = variable

    def is_addition(self, handle: Any, value: Any) -> bool:
        """Whether `value` is what the variable of `handle` has, and something that does not depend on variables."""
        if not tf.is_symbolic_tensor(value):
            return False
        operation = _through_same_values(value).op
        if operation.type not in ("AddV2", "Add", "Sub"):
            return False
        first, second = operation.inputs
        if self._is_read(first, handle):
            return self.is_independent(second)
        return operation.type != "Sub" and self._is_read(second, handle) and self.is_independent(first)

    def is_independent(self, tensor: Any) -> bool:
        """Whether nothing that `tensor` is computed from has read a variable of the step."""
        left = [tensor] if tf.is_symbolic_tensor(tensor) else []
        visited: list[Any] = []
        seen: set[int] = set()
        while left:
            operation = _outside(left.pop()).op
            if id(operation) in self._independent or id(operation) in seen:
                continue
            seen.add(id(operation))
            visited.append(operation)
            for source in operation.inputs:
                if source.dtype == tf.resource and self._is_handle(source):
                    return False
                left.append(source)
        self._independent |= seen
        self._kept += visited
        return True

    def _is_read(self, tensor: Any, handle: Any) -> bool:
        operation = _through_same_values(tensor).op
        return operation.type == "ReadVariableOp" and _outside(operation.inputs[0]) is handle

    def _is_handle(self, tensor: Any) -> bool:
        outside = _outside(tensor)
        return any(outside is handle for handle in self.handles)


def _through_same_values(tensor: Any) -> Any:
    while tensor.op.type in _SAME_VALUE:
        tensor = tensor.op.inputs[0]
    return tensor


def _outside(tensor: Any) -> Any:
    """What a function's graph has captured as `tensor`, in the graph around it; any other tensor itself."""
    while tensor.op.type == "Placeholder":
        captured = [external for external, internal in getattr(tensor.graph, "captures", ()) if internal is tensor]
        if not captured or not tf.is_symbolic_tensor(captured[0]):
            return tensor
        tensor = captured[0]
    return tensor


def is_of_step(resource: Any) -> bool:
    """Whether a resource is made by the graph of the step, as a `StepVariable` is; else the graph is given it."""
    return bool(_outside(resource).op.type == "VarHandleOp")


@contextmanager
def swapped_for(pairs: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """While a step is traced, the second of each pair is the TensorFlow variable of the first, a Keras variable."""
    pairs = list(pairs)
    before = [(variable, variable._value) for variable, _ in pairs]
    try:
        for variable, stand_in in pairs:
            variable._value = stand_in
        yield
    finally:
        for variable, value in before:
            variable._value = value


def move_to_chief(variables: Iterable[Any]) -> None:
    """Moves Keras variables from the parameter servers to this process, with their values."""
    for variable in variables:
        if isinstance(variable._value, ON_SERVERS):
            value = tf.convert_to_tensor(variable._value)
            with tf.init_scope(), tf.device("/device:CPU:0"):
                variable._value = ResourceVariable(value, trainable=False, dtype=value.dtype, name=variable.name)
