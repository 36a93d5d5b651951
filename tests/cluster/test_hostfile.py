"""Hostfiles as Open MPI's and MPICH's `mpirun` read them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.cluster.hostfile import read_hostfile
from paceline.cluster.hosts import HostSlots
from paceline.errors import ConfigurationError

unhurried = settings(deadline=None)

OPEN_MPI = """\ufeff# our cluster
node1 slots=4   # the big one
node2 slots = 2 max_slots=8

ann@node3.lab.example
"""


def test_reads_open_mpis() -> None:
    assert read_hostfile(OPEN_MPI) == (
        HostSlots("node1", 4),
        HostSlots("node2", 2),
        HostSlots("ann@node3.lab.example", 1),
    )


def test_reads_mpichs() -> None:
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
def test_says_what_is_wrong(text: str, said: str) -> None:
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
def test_any_text(text: str) -> None:
    try:
        hosts = read_hostfile(text)
    except ConfigurationError as error:
        str(error).encode()
    else:
        assert hosts
        assert all(host.slots >= 1 for host in hosts)
