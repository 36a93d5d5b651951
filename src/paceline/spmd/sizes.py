"""The algebra of sizes: how long a dimension is, as a polynomial in the number of rows.

A step is traced once for batches of every length, so most sizes are numbers, and some are not known before the step
runs:

    7   rows   9·rows   rows·T   rows + 1   rows²

`rows` is the number of rows of the batch that one worker would have. Every other symbol, as `T`, is the size of some
dimension that the trace leaves open, such as the length of the sequences of a batch: nothing is known of it, but that
it is a size and has one value in a step. What is computed from shapes (products, differences, quotients without a
remainder) stays in the algebra; all else is `UNKNOWN`, which nothing equals, not even itself.

A step may also be traced for batches of one length only. `rows` is then that number (`dividing.rows_are`), and all
that is proved is proved of these batches.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.spmd.dividing import dividing

_serials = itertools.count()


@dataclass(frozen=True, order=True)
class Symbol:
    """A size that the trace leaves open.

    Args:
        name: What it is called in messages.
        least: The smallest value that it can have.
    """

    serial: int
    name: str = field(compare=False)
    least: int = field(compare=False, default=0)

    @staticmethod
    def new(name: str) -> "Symbol":
        """A symbol unlike all others."""
        return Symbol(next(_serials), name)


_Monomial = tuple[tuple[Symbol, int], ...]
"""Symbols and their powers, ordered; `()` is the number 1."""


class Size:
    """A polynomial with whole coefficients, or `UNKNOWN`. Immutable.

    `==` is a proof: true if both are known and equal whatever the symbols stand for.
    """

    __slots__ = ("_terms",)

    def __init__(self, terms: Mapping[_Monomial, int] | None) -> None:
        if terms is not None and dividing.num_rows is not None:
            terms = _with_rows(terms, dividing.num_rows)
        self._terms = None if terms is None else {monomial: n for monomial, n in terms.items() if n}

    @staticmethod
    def of(value: "int | Symbol | Size") -> "Size":
        """`value` as a size."""
        if isinstance(value, Size):
            return value
        if isinstance(value, Symbol):
            return Size({((value, 1),): 1})
        return Size({(): int(value)})

    @property
    def known(self) -> bool:
        """Whether this is a polynomial."""
        return self._terms is not None

    @property
    def number(self) -> int | None:
        """The value, if this is the same number in every step."""
        if self._terms is None or any(monomial for monomial in self._terms):
            return None
        return self._terms.get((), 0)

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols in this polynomial."""
        return frozenset(symbol for monomial in self._terms or () for symbol, _ in monomial)

    @property
    def least(self) -> int | None:
        """A lower bound, where one is easily proved."""
        if self._terms is None or any(n < 0 for monomial, n in self._terms.items() if monomial):
            return None
        bound = 0
        for monomial, n in self._terms.items():
            smallest = 1
            for symbol, power in monomial:
                smallest *= symbol.least**power
            bound += n * smallest
        return bound

    def value(self, values: Callable[[Symbol], Any]) -> Any:
        """This polynomial with a value in place of each symbol: numbers, or whatever can be added and multiplied."""
        if self._terms is None:
            raise ValueError("an unknown size has no value")
        total: Any = None
        for monomial, n in sorted(self._terms.items()):
            term: Any = None
            for symbol, power in monomial:
                for _ in range(power):
                    term = values(symbol) if term is None else term * values(symbol)
            term = n if term is None else term if n == 1 else term * n
            total = term if total is None else total + term
        return 0 if total is None else total

    def __add__(self, other: "int | Size") -> "Size":
        other = Size.of(other)
        if self._terms is None or other._terms is None:
            return UNKNOWN
        terms = dict(self._terms)
        for monomial, n in other._terms.items():
            terms[monomial] = terms.get(monomial, 0) + n
        return Size(terms)

    __radd__ = __add__

    def __neg__(self) -> "Size":
        return self * -1

    def __sub__(self, other: "int | Size") -> "Size":
        return self + Size.of(other) * -1

    def __rsub__(self, other: "int | Size") -> "Size":
        return Size.of(other) - self

    def __mul__(self, other: "int | Size") -> "Size":
        other = Size.of(other)
        if 0 in (self.number, other.number):
            return Size.of(0)
        if self._terms is None or other._terms is None:
            return UNKNOWN
        terms: dict[_Monomial, int] = {}
        for one, n in self._terms.items():
            for two, m in other._terms.items():
                monomial = _product(one, two)
                terms[monomial] = terms.get(monomial, 0) + n * m
        return Size(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: "int | Size") -> "Size":
        """The quotient of two numbers as Python rounds it; else the one without a remainder, if there is one."""
        other = Size.of(other)
        dividend, divisor = self.number, other.number
        if divisor == 0 or not (self.known and other.known):
            return UNKNOWN
        if dividend is not None and divisor is not None:
            return Size.of(dividend // divisor)
        return self.over(other)

    def over(self, other: "int | Size") -> "Size":
        """The size that makes `self` when multiplied by `other`; else `UNKNOWN`.

        Where `other` may be zero nothing can be told of the quotient, so it is as if that were never so: in
        TensorFlow such a division fails, or its result belongs to a tensor without entries.
        """
        other = Size.of(other)
        if self._terms is None or not other._terms:
            return UNKNOWN
        quotient, rest = Size.of(0), self
        lead, n = max(other._terms.items(), key=_degree)
        while rest._terms:
            top, m = max(rest._terms.items(), key=_degree)
            monomial = _quotient(top, lead)
            if monomial is None or m % n:
                return UNKNOWN
            step = Size({monomial: m // n})
            quotient, rest = quotient + step, rest - step * other
        return quotient

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | Size):
            other = Size.of(other)
            return self._terms is not None and self._terms == other._terms
        return NotImplemented

    def __hash__(self) -> int:
        return hash(None if self._terms is None else frozenset(self._terms.items()))

    def __repr__(self) -> str:
        if self._terms is None:
            return "?"
        texts = []
        for monomial, n in sorted(self._terms.items(), key=_degree, reverse=True):
            factors = [symbol.name + ("" if power == 1 else f"^{power}") for symbol, power in monomial]
            texts.append("·".join(([] if n == 1 and factors else [str(n)]) + factors))
        return " + ".join(texts) or "0"


def counts_rows(size: Size) -> bool:
    """Whether a size looks as if it counted rows; of a number nobody knows. No proof: only a reason to try."""
    return ROWS in size.symbols or (dividing.num_rows is not None and size.number == dividing.num_rows)


def _with_rows(terms: Mapping[_Monomial, int], number: int) -> dict[_Monomial, int]:
    result: dict[_Monomial, int] = {}
    for monomial, n in terms.items():
        rest = tuple((symbol, power) for symbol, power in monomial if symbol != ROWS)
        of_rows = sum(power for symbol, power in monomial if symbol == ROWS)
        result[rest] = result.get(rest, 0) + n * number**of_rows
    return result


def _product(one: _Monomial, two: _Monomial) -> _Monomial:
    powers = dict(one)
    for symbol, power in two:
        powers[symbol] = powers.get(symbol, 0) + power
    return tuple(sorted(powers.items()))


def _quotient(one: _Monomial, two: _Monomial) -> _Monomial | None:
    powers = dict(one)
    for symbol, power in two:
        powers[symbol] = powers.get(symbol, 0) - power
        if powers[symbol] < 0:
            return None
    return tuple(sorted((symbol, power) for symbol, power in powers.items() if power))


def _degree(term: tuple[_Monomial, int]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Where a term stands in an order that products keep, as division needs: by degree, then as in a dictionary."""
    monomial, _ = term
    return sum(power for _, power in monomial), tuple((-symbol.serial, power) for symbol, power in monomial)


UNKNOWN = Size(None)
"""A size of which nothing is known."""

ROWS = Symbol(-1, "rows", least=1)
"""How many rows the whole batch has. A step without a row is none, so there is at least one."""

ONE = Size.of(1)
