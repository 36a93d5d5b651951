"""What is known of the batch that the next step takes, before it is divided over ranks: what one worker would get."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from paceline.strategy.per_thread import PerThread


@dataclass(frozen=True)
class WholeBatch:
    """The batch of one worker.

    Args:
        sizes: The first size of each component, in the order of `tf.nest.flatten`: a number if the script has named
            its batch size, else None. None: nothing is known.
        is_local: Whether each rank feeds rows of its own, as many as it likes.
        usual_num_rows: Of a full batch, for words only, if the data tell: batches of any number are of one kind.
    """

    sizes: tuple[int | None, ...] | None = None
    is_local: bool = False
    usual_num_rows: int | None = field(default=None, compare=False)

    @property
    def num_rows(self) -> int | None:
        """How many rows each batch has, if the script has named that."""
        return next((size for size in self.sizes or () if size is not None), None)

    def size_of(self, index: int) -> int | None:
        """The first size of a component."""
        return None if self.sizes is None else self.sizes[index]


def batch_of(description: Any) -> WholeBatch:
    """The batches of the data that a `DataDescription` describes."""
    if description is None:
        return WholeBatch()
    if description.is_local:
        return WholeBatch(is_local=True)
    return batch_like(description.element_spec, description.batch_size)


def batch_like(element_spec: Any, usual_num_rows: int | None = None) -> WholeBatch:
    """The batches of data with this spec, which all ranks read."""
    return WholeBatch(tuple(_first_size(leaf) for leaf in tf.nest.flatten(element_spec)), usual_num_rows=usual_num_rows)


def _first_size(spec: Any) -> int | None:
    shape = getattr(spec, "shape", None)
    if not isinstance(spec, tf.TensorSpec) or shape is None or not shape.rank:
        return None
    size: int | None = shape[0]
    return size


_coming = PerThread(WholeBatch())


def coming_batch() -> WholeBatch:
    """The batch that the step takes which comes next in this thread."""
    return _coming.value


def expect(batch: WholeBatch) -> None:
    """The next step in this thread takes such a batch."""
    _coming.value = batch


def expected(batch: WholeBatch) -> AbstractContextManager[None]:
    """While this lasts, steps take such a batch; then what was expected before."""
    return _coming.replaced(batch)
