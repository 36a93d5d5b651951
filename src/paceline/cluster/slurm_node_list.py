"""Slurm's short forms: ``n[01-03,7],login1`` for node names, ``2(x3),1`` for tasks per node. Pure."""

import re
from itertools import product

from paceline.cluster.value_checks import Fault, shown

MAX_NODES = 65_536
"""More nodes than that are a broken text, not a cluster."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_ITEM = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_COUNT = re.compile(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?")


def expand_node_list(field: str, text: str) -> tuple[str, ...] | Fault:
    """The names that `text` stands for, in Slurm's order, or what is wrong with it; `field` is where it was found.

    A number keeps the zeros of the range it comes from; of several ranges in a name the last one runs fastest.

    >>> expand_node_list("SLURM_STEP_NODELIST", "n[08-10,7],gpu[1-2]-ib[3,5]")
    ('n08', 'n09', 'n10', 'n7', 'gpu1-ib3', 'gpu1-ib5', 'gpu2-ib3', 'gpu2-ib5')
    """
    fault = Fault(
        field,
        shown(text),
        'names of nodes as Slurm writes them, such as "n[01-03,7],login1"',
        "see what `scontrol show hostnames` makes of it",
    )
    names: list[str] = []
    items = _ITEM.findall(text)
    if not items or ",".join(items) != text:
        return fault
    for item in items:
        expanded = _expand_item(item, MAX_NODES - len(names))
        if expanded is None:
            return fault
        names += expanded
    return tuple(names) if all(_NAME.fullmatch(name) for name in names) else fault


def _expand_item(item: str, room: int) -> list[str] | None:
    """The names of one item, at most `room`; None if it is not well formed or names too many."""
    parts: list[list[str]] = []
    for match in _PART.finditer(item):
        numbers = [match[2]] if match[1] is None else _expand_ranges(match[1], room)
        if numbers is None or (room := room // len(numbers)) < 1:
            return None
        parts.append(numbers)
    return ["".join(chosen) for chosen in product(*parts)]


def _expand_ranges(text: str, room: int) -> list[str] | None:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + room - len(numbers):
            return None
        numbers += [str(number).zfill(len(match[1])) for number in range(first, last + 1)]
    return numbers


def expand_tasks_per_node(field: str, text: str) -> tuple[int, ...] | Fault:
    """The number of tasks on each node, or what is wrong with `text`; `field` is where it was found.

    >>> expand_tasks_per_node("SLURM_STEP_TASKS_PER_NODE", "2(x3),1")
    (2, 2, 2, 1)
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part)
        if match is None or len(counts) + int(match[2] or 1) > MAX_NODES:
            return Fault(field, shown(text), 'tasks per node as Slurm writes them, such as "2(x3),1"', _AS_SRUN_SETS_IT)
        counts += [int(match[1])] * int(match[2] or 1)
    return tuple(counts)


_AS_SRUN_SETS_IT = "start the script with srun and leave its variables as they are"
