"""Hosts as people write them, and who runs where."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.hosts import HostSlots, place_ranks, read_hosts
from paceline.errors import ConfigurationError

unhurried = settings(deadline=None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:2,b:2", [("a", 2), ("b", 2)]),
        ("a", [("a", 1)]),
        (" a:2 , b ", [("a", 2), ("b", 1)]),
        ("ann@gpu-1.lab.example:8", [("ann@gpu-1.lab.example", 8)]),
        ("[::1]:2,[fe80::1%eth0]", [("::1", 2), ("fe80::1%eth0", 1)]),
        ("ann@[fd00::7]:3", [("ann@fd00::7", 3)]),
        ("10.0.0.7:2", [("10.0.0.7", 2)]),
        ("a:2,b:1,a:3", [("a", 5), ("b", 1)]),  # as mpirun adds them up
        ("ann@a,bob@a", [("ann@a", 1), ("bob@a", 1)]),
    ],
)
def test_reads(text: str, expected: list[tuple[str, int]]) -> None:
    assert [(host.host, host.slots) for host in read_hosts(text)] == expected


def test_the_name_is_without_the_user() -> None:
    assert HostSlots("ann@fd00::7").name == "fd00::7"
    assert HostSlots("a").name == "a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "host 1: received nothing; expected HOST"),
        ("a,,b", "host 2: received nothing"),
        ("a:0", 'host 1: received "0"; expected a number of workers from 1 to 4096'),
        ("a:22222", "not a port"),
        ("a:", "host 1: received nothing; expected a number of workers"),
        ("a:two", 'received "two"'),
        ("::1", "put an IPv6 address in brackets"),
        ("[::1", "put an IPv6 address in brackets"),
        ("[a]:2", 'received "[a]:2"'),
        ("ssh://a:2", "without a scheme"),
        ("-oProxyCommand=x", "HOST"),  # ssh would take it for an option
        ("-a", "expected HOST"),
        ("@a", "a user name before the '@'"),
        ("-x@a", "a user name before the '@'"),
        ("a b", "expected HOST"),
        ("10.0.0.700", "expected HOST"),
        ("a\n", None),
    ],
)
def test_says_what_is_wrong(text: str, said: str | None) -> None:
    if said is None:
        assert read_hosts(text) == (HostSlots("a"),)
        return
    with pytest.raises(ConfigurationError) as raised:
        read_hosts(text)
    assert said in str(raised.value)


def test_all_faults_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_hosts("a:0,b,c:x")
    assert str(raised.value).startswith("--hosts has 2 faults:\n")
    assert "host 1" in str(raised.value)
    assert "host 3" in str(raised.value)


@unhurried
@given(st.text() | st.text("ab@:,[].0123456789-% "))
def test_any_text(text: str) -> None:
    try:
        hosts = read_hosts(text)
    except ConfigurationError as error:
        str(error).encode()
    else:
        assert len({host.host for host in hosts}) == len(hosts)
        assert all(host.slots >= 1 and not host.host.startswith("-") for host in hosts)


HOSTS = read_hosts("a:2,b:1,c:3")


@pytest.mark.parametrize(
    ("world_size", "used", "spare"),
    [
        (None, "a:2,b:1,c:3", 0),
        (6, "a:2,b:1,c:3", 0),
        (4, "a:2,b:1,c:1", 0),
        (3, "a:2,b:1", 1),
        (2, "a:2", 2),
        (1, "a:1", 2),
    ],
)
def test_fills_in_the_order_given(world_size: int | None, used: str, spare: int) -> None:
    assert place_ranks(HOSTS, world_size) == (read_hosts(used), HOSTS[len(HOSTS) - spare :])


@pytest.mark.parametrize("world_size", [0, -1, 7, 10**9])
def test_refuses_more_workers_than_slots(world_size: int) -> None:
    with pytest.raises(ConfigurationError) as raised:
        place_ranks(HOSTS, world_size)
    assert f"{world_size} workers for 6 slots (a:2, b:1, c:3)" in str(raised.value)


@unhurried
@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.data())
def test_no_rank_is_lost(slots: list[int], data: st.DataObject) -> None:
    hosts = tuple(HostSlots(f"h{number}", count) for number, count in enumerate(slots))
    world_size = data.draw(st.integers(1, sum(slots)))
    used, spare = place_ranks(hosts, world_size)
    assert sum(host.slots for host in used) == world_size
    assert [host.host for host in (*used, *spare)] == [host.host for host in hosts]
    assert all(now.slots == given.slots for now, given in zip(used[:-1], hosts, strict=False))
