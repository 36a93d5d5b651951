"""Maps that stay where they are, on all rows: why, and what to write instead."""

import re
from typing import Any

from paceline.data import compat
from paceline.data.fingerprint import DRAWS
from paceline.data.own_rows.marked_functions import is_element_wise

BATCHES, MAPS = frozenset(["Batch", "ParallelBatch"]), frozenset(["Map", "ParallelMap"])
_OF_MAP = re.compile("(?:__inference_)?Dataset_map_(.+?)(?:_[0-9]+)?")
"""What TensorFlow calls the traced function of a map."""

_HAS_NO_EFFECT = re.compile(
    "(Stateful)?PartitionedCall$|While$|If$|Case$|Assert$|ReadVariableOp$|ResourceGather|LookupTable(Find|Size)"
)
"""Operations that have a state for TensorFlow, but only read it or call others."""
_MAKES_DATASETS = re.compile(".*(Dataset|Iterator|Optional)")


def reason_to_stay(one: Any) -> str:
    """Why a map cannot come behind the choice of rows; empty: it can."""
    if compat.traced_function_of(one) is None:
        return "as its function was traced as TensorFlow 1 does"
    if is_element_wise(compat.given_function_of(one)):
        return ""
    types = _operations_in(one)
    if any("PyFunc" in name for name in types):
        return "as it calls Python: with paceline.data.element_wise(function) it would not"
    if any(map(DRAWS.match, types)):
        return "as it draws random numbers: with tf.random.stateless_* it would not"
    if any(map(_MAKES_DATASETS.match, types)):
        return "as it makes datasets"
    return "as it has effects of its own" if _has_effects(types) else ""


def reason_of_state(one: Any) -> str:
    """Why a map without effects cannot come behind the choice of rows: its result depends on those of stages before."""
    if not (own := compat.resources_of_functions(one)) or is_element_wise(compat.given_function_of(one)):
        return ""
    before = (stage for source in compat.inputs_of(one) for stage in compat.with_sources(source))
    changed = (stage for stage in before if own & compat.resources_of_functions(stage))
    return "as a stage before changes what it reads" if any(_has_effects(_operations_in(s)) for s in changed) else ""


def computes(one: Any) -> bool:
    """Whether a map does more than to name its components otherwise, which costs less than a choice of rows."""
    return not _operations_in(one) <= {"Placeholder", "Identity", "NoOp"}


def _operations_in(one: Any) -> set[str]:
    return set().union(*compat.operations_of_functions(one))


def _has_effects(types: set[str]) -> bool:
    """Whether operations of these types do more than to compute: they change or write something, or draw."""
    # Calls of functions are no operations that TensorFlow knows.
    return any(compat.has_state(name) and not _HAS_NO_EFFECT.match(name) for name in types)


_INSTEAD = {
    "Cache": "as .cache() behind it keeps its rows: behind .cache(), it would run in each epoch, on own rows",
    "Filter": "as .filter() behind it needs what it returns: behind .filter(), it would run on the rows of this rank",
    "PaddedBatch": "as .padded_batch() pads to the longest row of a batch: in .batch(), rows of one shape are divided",
}
"""What to write in place of some stages; any other stage is in the way of the maps before it, too."""


def maps_kept_by(one: Any) -> str:
    """What to tell of a stage that needs rows which are mapped already; empty: nothing is computed before it."""
    kind = compat.kind_of(one)
    if kind in MAPS:  # of whole elements, which no stage has put together
        return ""
    if inner := _maps_inside(one):
        return (
            f"map `{inner}` runs on all rows on every rank, as it is inside of a function that makes datasets "
            f"({compat.method_of(one)}): behind this stage, just before .batch(), it would run on the rows of this rank"
        )
    otherwise = (
        f"as the stage `{compat.method_of(one)}` behind it takes what it returns: behind that stage, just before "
        ".batch(), it would run on the rows of this rank"
    )
    return stays_before(one, _INSTEAD.get(kind, otherwise))


def _maps_inside(one: Any) -> str:
    """The name of the function of a map in the datasets that a stage's function makes; empty: there is none."""
    libraries = (function.graph.as_graph_def().library for function in compat.functions_of(one))
    names = (_OF_MAP.fullmatch(inner.signature.name) for library in libraries for inner in library.function)
    return next(("<lambda>" if found[1].strip("_") == "lambda" else found[1] for found in names if found), "")


def stays_before(one: Any, reason: str) -> str:
    """What to tell of a stage that keeps the maps before it where they are; empty: nothing is computed there."""
    for stage in compat.with_sources(one):
        if compat.kind_of(stage) not in MAPS:
            if stage is not one and _maps_inside(stage):
                return maps_kept_by(stage)
        elif computes(stage) and compat.calls_function_of_script(stage):
            return f"map `{name_of_map(stage)}` runs on all rows on every rank, {reason_to_stay(stage) or reason}"
    return ""


def name_of_map(one: Any) -> str:
    """The name of the Python function that a stage calls."""
    return str(getattr(compat.given_function_of(one), "__name__", "function"))
