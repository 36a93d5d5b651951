"""Hosts as people write them, also in hostfiles of Open MPI and MPICH, and who runs where."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.hosts import HostSlots, place_ranks, read_hostfile, read_hosts
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


OPEN_MPI = """\ufeff# our cluster
node1 slots=4   # the big one
node2 slots = 2 max_slots=8

ann@node3.lab.example
"""


def test_reads_the_hostfiles_of_open_mpi() -> None:
    assert read_hostfile(OPEN_MPI) == (
        HostSlots("node1", 4),
        HostSlots("node2", 2),
        HostSlots("ann@node3.lab.example", 1),
    )


def test_reads_the_hostfiles_of_mpich() -> None:
    assert read_hostfile("node1:4\r\n[fd00::7]:2\r\n[fd00::8] slots=3\nnode1") == (
        HostSlots("node1", 5),
        HostSlots("fd00::7", 2),
        HostSlots("fd00::8", 3),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the whole file: received no host"),
        ("# nothing\n\n", "the whole file: received no host"),
        ("a slots=0", 'line 1: received "0"; expected a number of workers'),
        ("\na slots=", "line 2: received nothing"),
        ("a slots=1 slots=1", "the number of slots once"),
        ("a:2 slots=2", "the number of slots once"),
        ("a slots=4 max_slots=2", "max_slots of 4 or more"),
        ("a:4 max-slots=2", "max_slots of 4 or more"),
        ("a 4", 'received "4"'),
        ("a slots=2 user=ann", "belong into the ssh configuration"),
        ("a:2 ifname=eth0", "belong into the ssh configuration"),
        ("a,b", 'received "a,b"'),
        ("-oX slots=2", 'received "-oX"'),
    ],
)
def test_says_what_is_wrong_in_a_hostfile(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_hostfile(text, "hosts.txt")
    assert str(raised.value).startswith("hosts.txt has 1 fault:\n")
    assert said in str(raised.value)


def test_all_faults_at_once_with_their_lines() -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_hostfile("a\nb slots=x\n# c\nd e\n")
    assert str(raised.value).startswith("the hostfile has 2 faults:\n")
    assert "line 2:" in str(raised.value)
    assert "line 4:" in str(raised.value)


@unhurried
@given(st.text() | st.text("ab@:[]=slotmax_-#\n\r 0123456789"))
def test_any_text_as_a_hostfile(text: str) -> None:
    try:
        hosts = read_hostfile(text)
    except ConfigurationError as error:
        str(error).encode()
    else:
        assert hosts
        assert all(host.slots >= 1 for host in hosts)
