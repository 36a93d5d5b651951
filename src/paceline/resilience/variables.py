"""Variables in a snapshot: copied out once, checked before they are put back."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from paceline.resilience.object_state import Tensors

Described = list[list[Any]]
"""For each variable its path, its shape, and the name of its tensor."""


def copied(variables: Iterable[Any], name: str, tensors: Tensors) -> Described:
    """Descriptions of `variables`, whose values are added to `tensors` under `name`, each copied once."""
    described = []
    for index, variable in enumerate(variables):
        at = f"{name}/{index:05d}"
        tensors[at] = variable.numpy()
        described.append([getattr(variable, "path", variable.name), list(variable.shape), at])
    return described


def check(variables: Sequence[Any], described: Sequence[Any], what: str) -> None:
    """Whether a snapshot's values fit.

    Raises:
        ValueError: names the first that does not.
    """
    for variable, (path, shape, _) in zip(variables, described, strict=False):
        if list(variable.shape) != list(shape):
            raise ValueError(
                f"{what} {path} has the shape {tuple(shape)} in the snapshot and {tuple(variable.shape)} in the script "
                f"({getattr(variable, 'path', variable.name)}): it is another model. Give it a snapshot directory of "
                "its own (--snapshot-dir), or the script that the snapshot was taken of."
            )
    if len(variables) != len(described):
        raise ValueError(
            f"the snapshot has {len(described)} {what}s and the script {len(variables)}: it is another model. Give it "
            "a snapshot directory of its own (--snapshot-dir), or the script that the snapshot was taken of."
        )


def assign(variables: Sequence[Any], described: Sequence[Any], tensors: Mapping[str, Any]) -> None:
    """Gives `variables` the snapshot's values."""
    for variable, (_, _, at) in zip(variables, described, strict=True):
        variable.assign(tensors[at])


def assign_sums(
    variables: Sequence[Any], described: Sequence[Any], parts: Sequence[Mapping[str, Any]], *, is_chief: bool
) -> None:
    """Gives metrics what several ranks have counted, where another number of ranks goes on: the chief has it all."""
    for variable, (_, _, at) in zip(variables, described, strict=True):
        values = [part[at] for part in parts]
        if getattr(variable, "aggregation", "sum") != "sum":
            variable.assign(values[0])
        else:
            variable.assign(np.sum(values, axis=0, dtype=values[0].dtype) if is_chief else np.zeros_like(values[0]))
