"""How Slurm spreads the tasks of a step over its nodes: which node and which number there each task has. Pure."""

from collections.abc import Mapping, Sequence

from paceline.cluster.faults import FaultList, shown

_DISTRIBUTION = "SLURM_DISTRIBUTION"
_PLANE_SIZE = "SLURM_DIST_PLANESIZE"
_FIX = "start the step with `srun --distribution=block`, or with one task per node"


def layout(counts: Sequence[int], at_a_time: int | None) -> tuple[tuple[int, int], ...]:
    """Node and number there of each task, in the order of the tasks.

    >>> layout([2, 1], at_a_time=None)
    ((0, 0), (0, 1), (1, 0))
    >>> layout([2, 1], at_a_time=1)
    ((0, 0), (1, 0), (0, 1))

    Args:
        counts: Tasks on each node.
        at_a_time: How many tasks a node gets before it is the next one's turn; None: all of its tasks.
    """
    places: list[tuple[int, int]] = []
    used = [0] * len(counts)
    while len(places) < sum(counts):
        for node, count in enumerate(counts):
            until = count if at_a_time is None else min(count, used[node] + at_a_time)
            places += [(node, local) for local in range(used[node], until)]
            used[node] = until
    return tuple(places)


def tasks_at_a_time(variables: Mapping[str, str], faults: FaultList) -> int | None:
    """How many tasks in a row a node gets; None: all of its tasks. Adds to `faults` what cannot be known.

    Variables read: SLURM_DISTRIBUTION (``block`` when absent), SLURM_DIST_PLANESIZE.
    """
    text = variables.get(_DISTRIBUTION, "")
    over_nodes = text.lower().partition(":")[0].partition(",")[0].partition("=")[0]
    if over_nodes in ("", "*", "block"):
        return None
    if over_nodes == "cyclic":
        return 1
    size = variables.get(_PLANE_SIZE) or text.partition("=")[2]
    if over_nodes == "plane" and size.isascii() and size.isdecimal() and 0 < len(size) < 7 and int(size):
        return int(size)
    faults.add(_DISTRIBUTION, shown(text), "block, cyclic or plane, whose places can be worked out", _FIX)
    return None


def check_own_place(variables: Mapping[str, str], faults: FaultList, place: tuple[int, int]) -> None:
    """Adds to `faults` if Slurm has put this task elsewhere than at `place`, its node and number there.

    Variables read: SLURM_NODEID, SLURM_LOCALID.
    """
    for name, worked_out in zip(("SLURM_NODEID", "SLURM_LOCALID"), place, strict=True):
        text = variables.get(name)
        if text and text.strip() != str(worked_out):
            expected = f"{worked_out}, as this step's tasks per node and its distribution say"
            faults.add(name, shown(text), expected, _FIX)
