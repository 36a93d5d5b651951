"""What is known of a variable of a loop, or of what branches make: what is true of each turn and of each branch."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from paceline.spmd.placements import Dims, Open, Placement, R, Sharded, Spec, common_content, known_content, new_dims
from paceline.spmd.rules.lists import are_alike, common_placement
from paceline.spmd.sizes import ROWS, UNKNOWN, Size, Symbol


class Variable:
    """What is known of a variable of a loop, ever less until it is true of each turn.

    Args:
        spec: What is known of it before the first turn.
        name: What new sizes are called.
        outside: The sizes that have one value before, in and after the loop.
    """

    def __init__(self, spec: Spec, name: str, outside: frozenset[Symbol]) -> None:
        self.spec = spec
        self._name = name
        self._outside = outside
        self._whole = False
        self._varying: set[Symbol] = set()

    def joined_by(self, other: Spec) -> bool:
        """Makes the spec true of `other`, too; whether it had to change."""
        old = self.spec
        if isinstance(old.placement, Open):  # which knows nothing of elements yet
            other = outside_of(other, self._outside, self._name)
            old = replace(old, dims=other.dims, content=other.content)
        placement = R if self._whole else common_placement(self.spec, other)
        dims, changed = self._common_dims(old.dims, other.dims, placement)
        if old.element is not None and not isinstance(placement, Open) and not are_alike(dims):
            placement = R
        if placement == R and not all(each == R or isinstance(each, Open) for each in (old.placement, other.placement)):
            self._whole = True  # for good: what is whole because two ways do not fit would else turn back and forth
        content = common_content(old.content, other.content)
        changed |= placement != old.placement
        changed |= (content is None) != (old.content is None) or _knows_less(content, old.content)
        if placement != R:
            content = None
        self.spec = Spec(placement, dims, content, old.element or other.element)
        return changed

    def _common_dims(self, one: Dims | None, two: Dims | None, placement: Placement) -> tuple[Dims | None, bool]:
        if one is None or two is None or len(one) != len(two):
            return None, one is not None
        common = []
        changed = False
        for axis, (a, b) in enumerate(zip(one, two, strict=True)):
            if isinstance(placement, Sharded) and axis == placement.dim:
                common.append(placement.size)
            elif a == b or a.symbols & self._varying:
                common.append(a)
            elif self.spec.element is not None:
                common.append(UNKNOWN)
                changed |= a.known
            else:
                symbol = Symbol.new(f"{self._name}.{axis}")
                self._varying.add(symbol)
                common.append(Size.of(symbol))
                changed = True
        return tuple(common), changed

    def give_up(self) -> None:
        """Whole, and of any size."""
        dims = None if self.spec.dims is None else (UNKNOWN,) * len(self.spec.dims)
        nothing = replace(self.spec, placement=R, content=None, dims=dims)
        self.spec = outside_of(nothing, self._outside, self._name)

    def after(self) -> Spec:
        """What is known after the loop: sizes that vary have one more value then."""
        dims = self.spec.dims
        if dims is None:
            return self.spec
        new = [
            Size.of(Symbol.new(f"{self._name}.{axis}")) if size.symbols & self._varying else size
            for axis, size in enumerate(dims)
        ]
        return replace(self.spec, dims=tuple(new))


def symbols_of(specs: Iterable[Spec]) -> frozenset[Symbol]:
    """The sizes that these values tell of."""
    found = {ROWS}
    for spec in specs:
        for size in [*(spec.dims or ()), *(() if spec.content is None else spec.content.reshape(-1))]:
            found |= size.symbols
    return frozenset(found)


def outside_of(spec: Spec, outside: frozenset[Symbol], name: str) -> Spec:
    """What is known of a value of an inner graph where only the sizes `outside` have a value: others are new there."""
    dims, content = spec.dims, spec.content
    if dims is not None:
        new = [UNKNOWN] * len(dims) if spec.element is not None else new_dims([None] * len(dims), name) or ()
        dims = tuple(
            size if size.known and size.symbols <= outside else other for size, other in zip(dims, new, strict=True)
        )
    if content is not None:
        keep = np.frompyfunc(lambda size: size if size.symbols <= outside else UNKNOWN, 1, 1)
        content = known_content(np.asarray(keep(content), dtype=object))
    return replace(spec, dims=dims, content=content)


def either(specs: Sequence[Spec], name: str, outside: frozenset[Symbol]) -> Spec:
    """What is true of all of these, which branches make.

    Args:
        specs: What each branch makes.
        name: What new sizes are called.
        outside: The sizes that have a value outside the branches.
    """
    first, *others = (outside_of(spec, outside, name) for spec in specs)
    variable = Variable(first, name, outside)
    for other in others:
        variable.joined_by(other)
    return variable.spec


def _knows_less(one: np.ndarray | None, two: np.ndarray | None) -> bool:
    if one is None or two is None:
        return False
    return any(b.known and not a.known for a, b in zip(one.reshape(-1), two.reshape(-1), strict=True))
