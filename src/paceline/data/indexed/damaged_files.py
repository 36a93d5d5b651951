"""The file that a `DataLossError` of TensorFlow's is about, which does not name one: ``corrupted record at 1234``.

The names of TFRecord files that the data have been made of are read once more when such an error comes, and the first
damaged file is told. Names that are computed (a map over a folder) are not known here; of these nothing is told.
"""

import gc
import logging
import weakref
from typing import Any

import tensorflow as tf

from paceline.data import compat
from paceline.data.indexed.record_index import index_of
from paceline.data.indexed.record_sums import damage_of_file

_LOGGER = logging.getLogger("paceline")
_NAMES_AT_ONCE = 1024

_names: list[weakref.ref[Any]] = []
"""Datasets of names; the newest last. Data that are gone are not to be blamed, so these are not kept alive."""


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
