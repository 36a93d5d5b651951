"""Two rounds of pairs find the host whose network is bad."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paceline.doctor.pairing import Pair, blamed, first_round, second_round, slots

MAX_HOSTS = 40


def after_two_rounds(num_hosts: int, is_good: Callable[[Pair], bool]) -> dict[Pair, bool]:
    met = {pair: is_good(pair) for pair in first_round(num_hosts)}
    return met | {pair: is_good(pair) for pair in second_round(num_hosts, met)}


@pytest.mark.parametrize("num_hosts", range(3, MAX_HOSTS))
def test_one_bad_host_is_found(num_hosts: int) -> None:
    for bad in range(num_hosts):
        met = after_two_rounds(num_hosts, lambda pair, bad=bad: bad not in pair)
        assert blamed(met) == ((bad,), ())


@pytest.mark.parametrize("num_hosts", range(2, MAX_HOSTS))
def test_a_bad_cable_between_two_hosts_is_no_hosts_fault(num_hosts: int) -> None:
    for cut in first_round(num_hosts):
        assert blamed(after_two_rounds(num_hosts, lambda pair, cut=cut: set(pair) != set(cut))) == ((), (cut,))


@given(some.integers(2, MAX_HOSTS), some.data())
def test_several_bad_hosts(num_hosts: int, data: some.DataObject) -> None:
    bad = data.draw(some.sets(some.integers(0, num_hosts - 1)))
    met = after_two_rounds(num_hosts, lambda pair: not bad & set(pair))
    hosts, pairs = blamed(met)
    assert set(hosts) <= bad, "no good host is blamed"
    assert {pair for pair, is_good in met.items() if not is_good} == {
        pair for pair in met if pair in pairs or set(pair) & set(hosts)
    }, "each bad pair is explained, or told by itself"
    if any(met[pair] for pair in first_round(num_hosts)):
        assert (set(hosts), pairs) == (bad, ())


@given(some.integers(0, MAX_HOSTS), some.data())
def test_each_round_is_short(num_hosts: int, data: some.DataObject) -> None:
    """Each host is in few pairs, whatever the number of hosts; never with itself, nor twice with the same one."""
    ring = first_round(num_hosts)
    met = {pair: data.draw(some.booleans()) for pair in ring}
    second = second_round(num_hosts, met)
    both = [frozenset(pair) for pair in (*ring, *second)]
    assert len(set(both)) == len(both)
    assert all(len(pair) == 2 for pair in both)
    assert len(slots(ring)) <= 3
    assert sum(slots(second), ()) == () or {*sum(slots(second), ())} == {*second}


@given(some.lists(some.tuples(some.integers(0, 9), some.integers(10, 19))))
def test_no_host_is_in_two_pairs_at_once(pairs: list[Pair]) -> None:
    groups = slots(pairs)
    assert sorted(pair for group in groups for pair in group) == sorted(pairs)
    for group in groups:
        hosts = [host for pair in group for host in pair]
        assert len(set(hosts)) == len(hosts)
