"""Faults in an input pipeline, told as what they are.

Of an exception of a Python function TensorFlow hands on the text only, between several screens of its own: it is raised
as it was. A `DataLossError` does not name its file (``corrupted record at 1234``): the names of TFRecord files that the
data have been made of are read once more when such an error comes, and the first damaged file is told. Names that are
computed (a map over a folder) are not known here; of these nothing is told.
"""

import functools
import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.indexed.record_index import index_of
from paceline.data.indexed.record_sums import damage_of_file

_LOGGER = logging.getLogger("paceline")
_NAMES_AT_ONCE = 1024

_names: list[weakref.ref[Any]] = []
"""Datasets of names; the newest last. Data that are gone are not to be blamed, so these are not kept alive."""


class _Raised:
    """The exception that was raised last."""

    fault: Exception | None = None


_raised = _Raised()


def keeps_fault(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, for `tf.numpy_function`, whose exceptions are kept for `kept_fault_raised`."""

    @functools.wraps(function)
    def noted(*args: Any) -> Any:
        try:
            return function(*args)
        except StopIteration as fault:  # TensorFlow would take it for the end of the data
            _raised.fault = RuntimeError("StopIteration")
            raise _raised.fault from fault
        except Exception as fault:
            _raised.fault = fault
            raise

    return noted


@contextmanager
def kept_fault_raised() -> Iterator[None]:
    """An error of TensorFlow's in here that comes from a function that `keeps_fault` is raised as what that had raised.

    Raises:
        Exception: whatever the function has raised.
        ValueError: data are damaged, and the file is known (`told_of_damage`).
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        if told := told_of_damage():
            raise ValueError(told) from error
        raise
    except tf.errors.OpError as error:
        fault = _raised.fault
        if fault is None or str(fault) not in str(error):
            raise
        raise fault from None


def note_files_of(dataset: Any) -> None:
    """From now on `told_of_damage` looks at the TFRecord files that a dataset reads."""
    stages = list(compat.with_sources(dataset))
    if any(map(_reads_records, stages)):
        known = _alive()
        new = [one for one in stages if _has_names(one) and not any(one is other for other in known)]
        _names[:] = [weakref.ref(one) for one in (*known, *new)]


def told_of_damage() -> str:
    """What is wrong with the first damaged file; empty: nothing, or nobody knows the names."""
    gc.collect()  # datasets are in cycles
    for names in reversed(_alive()):
        paths = [path for batch in names.batch(_NAMES_AT_ONCE).as_numpy_iterator() for path in batch.tolist()]
        _LOGGER.info("TensorFlow has found damaged data; looking for the file, of %d", len(paths))
        if told := next(filter(None, map(_damage_of, paths)), ""):
            return f"{told}. Write the file again, or leave it out [record-damaged]"
    return ""


def _alive() -> list[Any]:
    return [names for one in _names if (names := one()) is not None]


def _reads_records(stage: Any) -> bool:
    kinds = {compat.kind_of(stage)}.union(*compat.operations_of_functions(stage))
    return any(kind.startswith("TFRecord") for kind in kinds)


def _has_names(stage: Any) -> bool:
    return compat.kind_of(stage) == "TensorSlice" and stage.element_spec == tf.TensorSpec([], tf.string)


def _damage_of(name: bytes) -> str:
    try:
        path = name.decode()
        return damage_of_file(path, index_of(path).compression)
    except ValueError:  # no file of this host, or no file at all
        return ""
