"""What can be proved of two sizes, whatever their symbols stand for; truths are one and zero."""

from collections.abc import Callable

from paceline.spmd.sizes import ONE, UNKNOWN, Size


def of_two_numbers(function: Callable[[int, int], int]) -> Callable[[Size, Size], Size]:
    """A function of numbers, of which nothing is known unless both are numbers."""

    def apply(one: Size, two: Size) -> Size:
        if one.number is None or two.number is None:
            return UNKNOWN
        return Size.of(int(function(one.number, two.number)))

    return apply


def larger(one: Size, two: Size) -> Size:
    """The larger one."""
    difference = one - two
    if difference.least is not None and difference.least >= 0:
        return one
    difference = two - one
    if difference.least is not None and difference.least >= 0:
        return two
    return UNKNOWN


def smaller(one: Size, two: Size) -> Size:
    """The smaller one."""
    if not (most := larger(one, two)).known:
        return UNKNOWN
    return two if most == one else one


def remainder(one: Size, two: Size) -> Size:
    """What is left of a division."""
    if one.number is not None and two.number:
        return Size.of(one.number % two.number)
    return Size.of(0) if (one // two).known else UNKNOWN


def equal(one: Size, two: Size) -> Size:
    """One if they are equal, zero if they cannot be."""
    if one == two:
        return ONE
    difference = (one - two).number
    return UNKNOWN if difference is None else Size.of(0)


def negated(one: Size) -> Size:
    """The opposite of a truth."""
    return UNKNOWN if one.number is None else Size.of(1 - one.number)


def compared(holds: Callable[[int], bool]) -> Callable[[Size, Size], Size]:
    """A comparison of two sizes by their difference."""

    def apply(one: Size, two: Size) -> Size:
        difference = one - two
        if difference.number is not None:
            return Size.of(int(holds(difference.number)))
        least, most = difference.least, (-difference).least
        if least is not None and holds(least) == holds(least + 1) == holds(2**62):
            return Size.of(int(holds(least)))
        if most is not None and holds(-most) == holds(-most - 1) == holds(-(2**62)):
            return Size.of(int(holds(-most)))
        return UNKNOWN

    return apply


def chosen(condition: Size, one: Size, two: Size) -> Size:
    """The first if the condition holds, else the second."""
    if condition.number is None:
        return one if one == two else UNKNOWN
    return one if condition.number else two
