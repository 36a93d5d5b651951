"""Element-wise operations as the text of one loop. Pure.

A loop takes vectors and variables of one length, and numbers, and computes for each entry, line by line, what a graph's
operations compute one tensor after the other:

    g = vector 0; m = read 0; d = g - m; x = d * number 0; m + x ─► variable 0; …

Each operation rounds as it does in the graph: nothing is put together or put in another order. So only operations that
IEEE 754 defines to the last bit are here, and the bits do not depend on the processor.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Args = Sequence[str]

FLOATS = {"float32": 4, "float64": 8}
"""The types of entries, and how many bytes they have."""

ALIGNMENT = 64
"""Bytes. Where an array of new values must begin, and a share of it that is not the first."""


@dataclass(frozen=True)
class Kind:
    """The type of what a line makes, in LLVM's language: one entry, or several at once.

    Args:
        entry: `float` or `double`.
        width: How many entries.
    """

    entry: str
    width: int = 1

    @property
    def name(self) -> str:
        """The type of entries."""
        return self.of(self.entry)

    @property
    def decision(self) -> str:
        """The type of what is true or false for each entry."""
        return self.of("i1")

    @property
    def suffix(self) -> str:
        """What the names of functions of this type end with."""
        bits = {"float": "f32", "double": "f64"}[self.entry]
        return bits if self.width == 1 else f"v{self.width}{bits}"

    def of(self, entry: str) -> str:
        """The type of as many other entries."""
        return entry if self.width == 1 else f"<{self.width} x {entry}>"

    def constant(self, number: float) -> str:
        """The same number for each entry."""
        return str(number) if self.width == 1 else f"<{', '.join([f'{self.entry} {number}'] * self.width)}>"


@dataclass(frozen=True)
class Step:
    """How an operation is written in LLVM's language.

    Args:
        write: From the type, the name of the result, and the arguments to its lines.
        num_args: How many arguments the operation takes.
        is_decision: Whether the result is true or false.
        takes_decisions: Which arguments are.
    """

    write: Callable[[Kind, str, Args], list[str]]
    num_args: int = 2
    is_decision: bool = False
    takes_decisions: tuple[int, ...] = ()


def _two(instruction: str) -> Step:
    return Step(lambda kind, to, args: [f"{to} = {instruction} {kind.name} {args[0]}, {args[1]}"])


def _called(function: str) -> Step:
    def write(kind: Kind, to: str, args: Args) -> list[str]:
        return [f"{to} = call {kind.name} @llvm.{function}.{kind.suffix}({kind.name} {args[0]})"]

    return Step(write, num_args=1)


def _compared(condition: str) -> Step:
    return Step(lambda kind, to, args: [f"{to} = fcmp {condition} {kind.name} {args[0]}, {args[1]}"], is_decision=True)


def _chosen(kind: Kind, to: str, decision: str, one: str, other: str) -> str:
    return f"{to} = select {kind.decision} {decision}, {kind.name} {one}, {kind.name} {other}"


def _larger(condition: str) -> Step:
    """The second if it compares so with the first, else the first: so Eigen does with what is no number."""

    def write(kind: Kind, to: str, args: Args) -> list[str]:
        return [
            f"{to}.is = fcmp {condition} {kind.name} {args[0]}, {args[1]}",
            _chosen(kind, to, f"{to}.is", args[1], args[0]),
        ]

    return Step(write)


def _sign(kind: Kind, to: str, args: Args) -> list[str]:
    """1, -1, or the absolute of the number, as Eigen does with zeros and what is no number.

    So it does with denormal numbers, too, but for the last few entries of a tensor, of which it makes zeros.
    """
    return [
        f"{to}.above = fcmp ogt {kind.name} {args[0]}, {kind.constant(0.0)}",
        f"{to}.below = fcmp olt {kind.name} {args[0]}, {kind.constant(0.0)}",
        f"{to}.abs = call {kind.name} @llvm.fabs.{kind.suffix}({kind.name} {args[0]})",
        _chosen(kind, f"{to}.one", f"{to}.above", kind.constant(1.0), f"{to}.abs"),
        _chosen(kind, to, f"{to}.below", kind.constant(-1.0), f"{to}.one"),
    ]


STEPS: dict[str, Step] = {
    **dict.fromkeys(("AddV2", "Add"), _two("fadd")),
    "Sub": _two("fsub"),
    "Mul": _two("fmul"),
    "RealDiv": _two("fdiv"),
    "Neg": Step(lambda kind, to, args: [f"{to} = fneg {kind.name} {args[0]}"], num_args=1),
    "Square": Step(lambda kind, to, args: [f"{to} = fmul {kind.name} {args[0]}, {args[0]}"], num_args=1),
    "SquaredDifference": Step(
        lambda kind, to, args: [
            f"{to}.less = fsub {kind.name} {args[0]}, {args[1]}",
            f"{to} = fmul {kind.name} {to}.less, {to}.less",
        ]
    ),
    "Sqrt": _called("sqrt"),
    "Abs": _called("fabs"),
    "Sign": Step(_sign, num_args=1),
    "Maximum": _larger("olt"),
    "Minimum": _larger("ogt"),
    "Greater": _compared("ogt"),
    "GreaterEqual": _compared("oge"),
    "Less": _compared("olt"),
    "LessEqual": _compared("ole"),
    **dict.fromkeys(
        ("Select", "SelectV2"),
        Step(
            lambda kind, to, args: [_chosen(kind, to, *args)],
            num_args=3,
            takes_decisions=(0,),
        ),
    ),
}
"""Types of operations that a loop can compute, and how."""


@dataclass(frozen=True)
class Line:
    """One line of a loop; its result is known by its number.

    Args:
        what: A type of operation in `STEPS`; or `number`, `vector`, `read`: one of those that the loop is given; or
            `assign`: from here on, a variable is this.
        args: The numbers of lines; of `number`, `vector`, `read` which one; of `assign` which variable, and the line.
    """

    what: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """What is computed for each entry. Equal loops are equal values.

    Args:
        dtype: The type of all entries and numbers: `float32` or `float64`.
        numbers: For each number whether it is true or false, and no number.
        num_vectors: How many vectors it reads.
        lines: In order.
    """

    dtype: str
    numbers: tuple[bool, ...]
    num_vectors: int
    lines: tuple[Line, ...]

    @property
    def read(self) -> tuple[int, ...]:
        """The variables whose value before it needs, in order: others may have none yet."""
        found: set[int] = set()
        assigned: set[int] = set()
        for line in self.lines:
            if line.what == "read" and line.args[0] not in assigned:
                found.add(line.args[0])
            elif line.what == "assign":
                assigned.add(line.args[0])
        return tuple(sorted(found))

    @property
    def written(self) -> tuple[int, ...]:
        """The variables that it writes, in order."""
        return tuple(sorted({line.args[0] for line in self.lines if line.what == "assign"}))

    @property
    def num_operations(self) -> int:
        """How many operations it computes for each entry."""
        return sum(line.what in STEPS for line in self.lines)
