"""Variables as parts of a snapshot: held at one moment, checked and assigned when they are restored."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.errors import ConfigurationError
from paceline.resilience.parts import Arrays, Part, Saved, Scope
from paceline.strategy.compat import ShardedVariable

Described = list[list[Any]]
"""For each variable its path, its shape, and the name of its tensor."""


def variables_part(name: str, scope: Scope, find: Callable[[], Sequence[Any]], what: str = "variable") -> Part:
    """The values of variables.

    Args:
        name: Of the part.
        scope: Who has them in common. To share out sums, see `are_sums`.
        find: Gives the variables, in the same order in each run of a script.
        what: What one is called in messages.
    """
    return Part(
        name,
        scope,
        lambda arrays: described(find(), arrays),
        lambda saved: assign(find(), saved.state, saved),
        lambda saved: check(find(), saved.state, what),
    )


def described(variables: Iterable[Any], arrays: Arrays) -> Described:
    """Descriptions of `variables`, whose values go to `arrays`."""
    described = []
    for number, variable in enumerate(variables):
        value = variable.value if isinstance(variable, keras.Variable) else variable
        tensor = _read(value)
        # TensorFlow's variable knows its shape; a tensor, and Keras's variable, would make a new `TensorShape`.
        shape = value.shape if value.shape.is_fully_defined() else tensor.shape
        described.append([getattr(variable, "path", variable.name), shape.as_list(), arrays.tensor(number, tensor)])
    return described


def _read(value: Any) -> Any:
    """A variable's value as a tensor. While it is held, the next step's assignment gives the variable new memory."""
    if isinstance(value, tf.distribute.DistributedValues):
        return value.read_value()
    if isinstance(value, ShardedVariable):  # whole, so that any number of servers may go on from it
        return tf.convert_to_tensor(value)
    # What `read_value` does, without the rest of it, which takes three times as long.
    return tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype)


def check(variables: Sequence[Any], described: Sequence[Any], what: str) -> None:
    """Whether a snapshot's values fit.

    Raises:
        ConfigurationError: names the first that does not. A restart would not help.
    """
    for variable, (path, shape, _) in zip(variables, described, strict=False):
        if list(variable.shape) != list(shape):
            raise ConfigurationError(
                f"{what} {path} has the shape {tuple(shape)} in the snapshot, but {tuple(variable.shape)} in the "
                f"script ({getattr(variable, 'path', variable.name)}): the model or the optimizer is another "
                "one. Use another snapshot directory for the new model (--snapshot-dir), or run the script that "
                "took the snapshot. [other-model]"
            )
    if len(variables) != len(described):
        raise ConfigurationError(
            f"the snapshot has {len(described)} {what}s, but the script has {len(variables)}: the model or the "
            "optimizer is another one. Use another snapshot directory for the new model (--snapshot-dir), or "
            "run the script that took the snapshot. [other-model]"
        )


def assign(variables: Sequence[Any], described: Sequence[Any], saved: Saved) -> None:
    """Gives `variables` the snapshot's values."""
    for variable, (_, _, at) in zip(variables, described, strict=True):
        variable.assign(saved.arrays[at])


def are_sums(variables: Iterable[Any], gradients: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Of what each rank has by itself: what is added up over ranks, and what is not.

    Args:
        variables: Of metrics and optimizers.
        gradients: Those of `variables` that are sums of gradients, which Keras's `aggregation` does not say.
    """
    known = {id(variable) for variable in gradients}
    sums: list[Any] = []
    others: list[Any] = []
    for variable in variables:
        is_sum = id(variable) in known or getattr(variable, "aggregation", "sum") == "sum"
        (sums if is_sum else others).append(variable)
    return sums, others
