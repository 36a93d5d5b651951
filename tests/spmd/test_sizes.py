"""Sizes are polynomials: what is computed with them is what numbers would give."""

import operator
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from paceline.spmd import proofs
from paceline.spmd.dividing import rows_are
from paceline.spmd.sizes import ONE, ROWS, UNKNOWN, Size, Symbol, counts_rows

LENGTH = Symbol.new("length")
_ATOMS = st.one_of(st.integers(-4, 9).map(Size.of), st.sampled_from([Size.of(ROWS), Size.of(LENGTH)]))
SIZES = st.recursive(
    _ATOMS, lambda inner: st.tuples(inner, inner, st.booleans()).map(lambda t: t[0] * t[1] if t[2] else t[0] + t[1])
)
ROW_COUNTS = st.integers(1, 50)
LENGTHS = st.integers(0, 50)


def _value(size: Size, rows: int, length: int) -> int:
    return int(size.value(lambda symbol: rows if symbol == ROWS else length))


@given(SIZES, SIZES, ROW_COUNTS, LENGTHS)
def test_sums_products_and_differences_are_those_of_the_values(one: Size, two: Size, rows: int, length: int) -> None:
    a, b = _value(one, rows, length), _value(two, rows, length)
    assert _value(one + two, rows, length) == a + b
    assert _value(one * two, rows, length) == a * b
    assert _value(one - two, rows, length) == a - b


@given(SIZES, SIZES, ROW_COUNTS, LENGTHS)
def test_a_quotient_is_without_remainder(one: Size, two: Size, rows: int, length: int) -> None:
    quotient = (one * two).over(two)
    if two == 0:
        assert not quotient.known
    else:
        assert quotient == one
    any_quotient = one.over(two)
    if any_quotient.known:
        assert _value(any_quotient, rows, length) * _value(two, rows, length) == _value(one, rows, length)


@given(SIZES, SIZES)
def test_equal_is_a_proof(one: Size, two: Size) -> None:
    if one == two:
        assert all(_value(one, n, t) == _value(two, n, t) for n in (1, 2, 7, 31) for t in (0, 1, 5))
    else:
        assert any(_value(one, n, t) != _value(two, n, t) for n in range(1, 40) for t in range(40))


@given(SIZES, ROW_COUNTS, LENGTHS)
def test_the_least_is_a_bound(size: Size, rows: int, length: int) -> None:
    if size.least is not None:
        assert _value(size, rows, length) >= size.least


_FUNCTIONS: dict[str, tuple[Callable[[Size, Size], Size], Callable[[int, int], int]]] = {
    "larger": (proofs.larger, max),
    "smaller": (proofs.smaller, min),
    "equal": (proofs.equal, operator.eq),
    "less": (proofs.compared(lambda difference: difference < 0), operator.lt),
    "at most": (proofs.compared(lambda difference: difference <= 0), operator.le),
    "greater": (proofs.compared(lambda difference: difference > 0), operator.gt),
    "at least": (proofs.compared(lambda difference: difference >= 0), operator.ge),
}


@given(st.sampled_from(sorted(_FUNCTIONS)), SIZES, SIZES, ROW_COUNTS, LENGTHS)
def test_what_is_proved_is_true(name: str, one: Size, two: Size, rows: int, length: int) -> None:
    proof, function = _FUNCTIONS[name]
    if (proved := proof(one, two)).known:
        assert _value(proved, rows, length) == function(_value(one, rows, length), _value(two, rows, length))


def test_nothing_equals_what_is_unknown() -> None:
    assert UNKNOWN != UNKNOWN
    assert UNKNOWN != ONE
    assert not (UNKNOWN + 1).known
    assert not (Size.of(ROWS) * UNKNOWN).known
    assert UNKNOWN * 0 == 0
    assert not (Size.of(ROWS) + 1).over(Size.of(ROWS)).known


def test_sizes_read_as_they_are_written() -> None:
    rows, length = Size.of(ROWS), Size.of(LENGTH)
    assert repr(rows * 9 * length + rows + 1) == "9·rows·length + rows + 1"


def test_rows_that_are_a_number() -> None:
    """Of a step for batches of one length, `rows` and that number are equal, and so is what is computed of them."""
    with rows_are(6):
        rows = Size.of(ROWS)
        assert rows == 6
        assert rows * 4 == 24
        assert Size.of(24).over(rows) == 4
        assert not Size.of(20).over(rows).known
        assert counts_rows(Size.of(6))
        assert not counts_rows(Size.of(12))
    assert Size.of(ROWS).number is None
    assert not counts_rows(Size.of(6))
