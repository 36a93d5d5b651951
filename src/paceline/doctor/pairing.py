"""Which hosts meet which to measure the network, and what the results say about the hosts. Pure.

    round 1, a ring      a ── b ── c ── d ── a      b is slow: its two pairs are, and no other one
    round 2              b ── d                     a host without a good pair meets others that have one

One slow pair says nothing about its two hosts. A host that has a good pair is cleared; one that is slow with cleared
hosts is the fault itself. (The two rounds are those of the network check of DLRover, which pairs hosts anew.)
"""

from collections.abc import Mapping, Sequence

Pair = tuple[int, int]
"""Two hosts, by their numbers: the first one connects to the second one."""


def first_round(num_hosts: int) -> tuple[Pair, ...]:
    """Each host with the next one.

    >>> first_round(4), first_round(2), first_round(1)
    (((0, 1), (1, 2), (2, 3), (3, 0)), ((0, 1),), ())
    """
    pairs = [(host, (host + 1) % num_hosts) for host in range(num_hosts)]
    return tuple(pairs if num_hosts > 2 else pairs[: num_hosts - 1])


def second_round(num_hosts: int, met: Mapping[Pair, bool]) -> tuple[Pair, ...]:
    """Partners that hosts without a good pair have not met, one for each of them as far as there is one.

    Args:
        num_hosts: How many hosts there are.
        met: The pairs of the first round, and whether each is good.

    >>> second_round(4, {(0, 1): False, (1, 2): False, (2, 3): True, (3, 0): True})
    ((1, 3),)
    """
    cleared = cleared_hosts(met)
    suspects = [host for host in range(num_hosts) if host not in cleared]
    partners = sorted(cleared) or suspects
    pairs: list[Pair] = []
    for number, host in enumerate(suspects):
        known = {host, *(other for pair in (*met, *pairs) if host in pair for other in pair)}
        strangers = [one for one in partners if one not in known]
        if strangers:
            pairs.append((host, strangers[number % len(strangers)]))
    return tuple(pairs)


def cleared_hosts(met: Mapping[Pair, bool]) -> frozenset[int]:
    """The hosts with a good pair."""
    return frozenset(host for pair, is_good in met.items() if is_good for host in pair)


def blamed(met: Mapping[Pair, bool]) -> tuple[tuple[int, ...], tuple[Pair, ...]]:
    """The hosts that are the fault, and the bad pairs for which no single host is.

    >>> blamed({(0, 1): False, (1, 2): False, (2, 0): True})
    ((1,), ())
    >>> blamed({(0, 1): False})
    ((), ((0, 1),))
    """
    cleared = cleared_hosts(met)
    bad = [pair for pair, is_good in met.items() if not is_good]
    hosts = {host for pair in bad for host in pair if host not in cleared and cleared & set(pair)}
    return tuple(sorted(hosts)), tuple(pair for pair in bad if not hosts & set(pair))


def slots(pairs: Sequence[Pair]) -> tuple[tuple[Pair, ...], ...]:
    """`pairs` in groups that can be measured at the same time: no host is in two pairs of a group.

    >>> slots([(0, 1), (1, 2), (2, 3), (3, 0)])
    (((0, 1), (2, 3)), ((1, 2), (3, 0)))
    """
    groups: list[list[Pair]] = []
    for pair in pairs:
        free = (group for group in groups if not any(set(pair) & set(other) for other in group))
        group = next(free, None)
        if group is None:
            groups.append([pair])
        else:
            group.append(pair)
    return tuple(map(tuple, groups))
