"""Which rows a step is verified on, and whether two runs of it are alike but for rounding. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.comm.group import Array

ROUNDINGS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance from one to the next number of a type; of types that are not here, such as float8, `COARSEST`."""
COARSEST = 2.0**-3
TENSOR_FLOAT = 2.0**-10
"""Of what matrix units make of float32, where TensorFlow lets them."""

_TIMES_ROUNDING = 16.0
"""How many roundings a disturbance is."""

_TIMES_NOISE = 64.0
"""By so much the largest difference of the disturbed runs may be below that of another one.

A gradient that is nothing but rounding, as that of a bias in front of a normalization, may be eight times as large in
one run as in another; an optimizer keeps its square.
"""


def disturbance(rounding: float) -> float:
    """By which part of them a disturbed run's inputs differ: by some roundings.

    One is too few: in sums over many rows errors add up, and one of them may turn the side of a `relu`. In half
    precision more than one or two would hide what is wrong.
    """
    return max(rounding, min(_TIMES_ROUNDING * rounding, math.sqrt(rounding) / _TIMES_ROUNDING))


_ROUNDINGS_OF_A_SUM = 4.0


def rows_given(counts: Sequence[int], wanted: int) -> list[int]:
    """How many of its first rows each rank gives, as evenly as they have them: `wanted` in all, if there are so many.

    Args:
        counts: The rows of each rank.
        wanted: Rows.
    """
    given = [0] * len(counts)
    while sum(given) < min(wanted, sum(counts)):
        own, rank = min((own, rank) for rank, own in enumerate(given) if own < counts[rank])
        given[rank] = own + 1
    return given


def uneven_parts(total: int, size: int) -> list[int]:
    """How many of `total` rows each of `size` ranks gets: not all alike; of three ranks or more, one gets none.

    Two rows lie on two ranks: a rank that has all rows needs nobody's, however wrong the division is.
    """
    ranks = [rank for rank in range(size) if size < 3 or rank != 1]
    parts = [0] * size
    for place, rank in enumerate(ranks):
        parts[rank] = total // len(ranks) + (place < total % len(ranks))
    if len(ranks) > 1 and parts[ranks[0]] == parts[ranks[-1]] > 1:
        parts[ranks[0]] += 1
        parts[ranks[-1]] -= 1
    return parts


@dataclass(frozen=True)
class Number:
    """A tensor that a run gives: an output, or the value of a variable.

    Args:
        name: For people.
        value: What it was in the run.
        before: What a variable was before.
    """

    name: str
    value: Array
    before: Array | None = None


def first_difference(
    found: Sequence[Array], expected: Sequence[Number], rounding: float, disturbed: Sequence[Sequence[Array]] = ()
) -> str:
    """The first number that differs by more than rounding, in words; empty: none does.

    A number is exact to half of its digits, seen against the largest change in its tensor, or as exact as it stays if
    inputs and variables are: where a difference of large numbers is left, or an optimizer divides a tiny gradient by
    its size, no digit is certain.

    Args:
        found: The numbers of one run.
        expected: Those of the other one.
        rounding: Of the coarsest type in which the run computes: relative.
        disturbed: The numbers of the other run with disturbed inputs and variables (`disturbance`), some times.
    """
    for index, (own, like) in enumerate(zip(found, expected, strict=True)):
        noise = max((_gap(run[index], like.value) for run in disturbed), default=0.0)
        if _gap(own, like.value) > _allowed(like, rounding, noise):
            return f"{like.name} ({_in_words(own, like.value)})"
    return ""


def _allowed(like: Number, rounding: float, noise: float) -> float:
    if like.value.dtype.kind in "biuSUO":
        return noise
    value = _wide(like.value)
    change = value if like.before is None else value - _wide(like.before)
    own = ROUNDINGS.get(like.value.dtype.name, COARSEST)
    with np.errstate(invalid="ignore", over="ignore"):
        half = math.sqrt(rounding) * _largest(change)
        last_digits = _ROUNDINGS_OF_A_SUM * own * _largest(value)
        return float(half + last_digits + _TIMES_NOISE * noise)


def _gap(one: Array, other: Array) -> float:
    """The largest difference of two tensors; infinite where only one is a number, or their shapes differ."""
    if one.shape != other.shape:
        return np.inf
    if one.dtype.kind in "bSUO":
        return 0.0 if np.array_equal(one, other) else np.inf
    left, right = _wide(one), _wide(other)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.where(same, 0.0, np.abs(left - right))
    return float(np.max(np.where(np.isnan(gaps), np.inf, gaps), initial=0.0))


def _largest(values: Array) -> float:
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))


def _wide(values: Array) -> Any:
    """Any numbers, as ones whose differences can be told."""
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _in_words(own: Array, like: Array) -> str:
    """Where two tensors differ most."""
    if own.shape != like.shape:
        return f"of shape {own.shape} in place of {like.shape}"
    if own.dtype.kind in "SUO":
        return "another text"
    if own.dtype.kind == "b":
        return "another flag"
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.abs(_wide(own) - _wide(like))
    most = int(np.argmax(np.where(np.isnan(gaps), np.isnan(_wide(own)) != np.isnan(_wide(like)), gaps)))
    return f"{own.flat[most]:g} in place of {like.flat[most]:g}"


def disturbed(value: Array, part: float, seed: int | Sequence[int]) -> Array:
    """`value`, each number of it larger or smaller by a part of it; what is no floating number as it is.

    Args:
        value: A tensor.
        part: Relative.
        seed: Which way.
    """
    if value.dtype.name not in ROUNDINGS:
        return value
    ways = np.random.default_rng(seed).choice([-1.0, 1.0], value.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray((value.astype(np.float64) * (1.0 + ways * part)).astype(value.dtype))
