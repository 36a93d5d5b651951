"""What is known of a variable of a loop, or of what branches make: what is true of each turn and of each branch."""

from dataclasses import replace

import numpy as np

from paceline.spmd.placements import Dims, Open, Placement, R, Sharded, Spec, common_content, new_dims
from paceline.spmd.rules.lists import joined
from paceline.spmd.sizes import Size, Symbol


class Variable:
    """What is known of a variable of a loop, ever less until it is true of each turn."""

    def __init__(self, spec: Spec, name: str) -> None:
        self.spec = spec
        self._name = name
        self._whole = False
        self._varying: set[Symbol] = set()

    def joined_by(self, other: Spec) -> bool:
        """Makes the spec true of `other`, too; whether it had to change."""
        old = self.spec
        placement = R if self._whole else joined(old.placement, other.placement)
        if isinstance(placement, Sharded) and not (_can_be(old, placement) and _can_be(other, placement)):
            placement = R
        if placement == R and not all(each == R or isinstance(each, Open) for each in (old.placement, other.placement)):
            self._whole = True  # for good: what is whole because two ways do not fit would else turn back and forth
        dims, changed = self._common_dims(old.dims, other.dims, placement)
        if isinstance(old.placement, Open) and old.dims is None:
            dims, changed = other.dims, other.dims is not None
        content = common_content(old.content, other.content)
        if isinstance(old.placement, Open):
            content = other.content
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
            else:
                symbol = Symbol.new(f"{self._name}.{axis}")
                self._varying.add(symbol)
                common.append(Size.of(symbol))
                changed = True
        return tuple(common), changed

    def give_up(self) -> None:
        """Whole, and of any size."""
        dims = self.spec.dims
        self.spec = Spec(R, None if dims is None else new_dims([None] * len(dims), self._name), None, self.spec.element)

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


def _can_be(spec: Spec, shard: Sharded) -> bool:
    """Whether a tensor can be made rows without a message."""
    if spec.placement == shard or isinstance(spec.placement, Open):
        return True
    return (
        spec.placement == R
        and spec.dims is not None
        and len(spec.dims) > shard.dim
        and spec.dims[shard.dim] == shard.size
    )


def either(one: Spec, two: Spec, name: str) -> Spec:
    """What is true of both."""
    variable = Variable(one, name)
    variable.joined_by(two)
    return variable.spec


def _knows_less(one: np.ndarray | None, two: np.ndarray | None) -> bool:
    if one is None or two is None:
        return False
    return any(b.known and not a.known for a, b in zip(one.reshape(-1), two.reshape(-1), strict=True))
