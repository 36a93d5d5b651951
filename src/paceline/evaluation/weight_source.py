"""Where weights to evaluate come from: a directory that another process writes to."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Weights:
    """Some weights that lie in a directory.

    Args:
        name: Of their file or folder, in the directory.
        stamp: Tells them from others that lie under the same name earlier or later.
        order: Sorts those of one directory from old to new.
        number: That the name ends with, or epochs that had ended; by it `SidecarEvaluator` knows the last ones. None:
            there is none.
        is_final: Whether no later ones are to come.
    """

    name: str
    stamp: str
    order: tuple[float, ...]
    number: int | None = None
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """When in a training some weights were what they are."""

    step: int | None
    """Optimizer steps; None: the source does not say."""
    epoch: int | None = None
    """That was being trained, from 0; None: the source does not say."""


class NotReadableError(RuntimeError):
    """Weights have gone meanwhile, or are not complete yet: the follower tries others, or again."""


class WeightSource(ABC):
    """A directory, which others write to and prune at any time. It is never locked."""

    @abstractmethod
    def found(self) -> Sequence[Weights]:
        """What lies there now, newest first; none if there is no such directory yet."""

    @abstractmethod
    def load(self, weights: Weights, model: Any) -> Moment:
        """Gives a model, which is built, these weights.

        Raises:
            NotReadableError: they have gone, or are not complete.
            ValueError: they are of another model.
        """
