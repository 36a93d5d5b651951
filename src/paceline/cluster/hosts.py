"""Hosts with their slots, from ``a:2,b:2`` after ``--hosts`` or from a file, and which worker goes to which host. Pure.

Nothing is resolved: a host may be an alias that only the user's ssh configuration knows.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paceline.cluster.address_text import is_host, is_ipv6
from paceline.cluster.value_checks import Fault, FaultList, shown
from paceline.errors import ConfigurationError

MAX_SLOTS = 4096
"""More workers than that on one host are a typing error, most often a port."""

_SETTING = "--hosts"
_EXPECTED = "HOST, HOST:SLOTS, USER@HOST:SLOTS or [IPv6]:SLOTS"
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+$-]{0,63}")
_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]*)\](:(?P<slots>.*))?", re.DOTALL)
_SLOTS = re.compile(r"[0-9]{1,9}")

_HAS_SLOTS = re.compile(r":[^\]]*$")  # not the colons of an IPv6 address, which end in a bracket
_AROUND_EQUALS = re.compile(r"\s*=\s*")
_SLOTS_KEY = "slots"
_MOST_SLOTS = ("max_slots", "max-slots")
_EXPECTED_LINE = f"HOST, HOST:SLOTS or HOST {_SLOTS_KEY}=N"


@dataclass(frozen=True, slots=True)
class HostSlots:
    """A host and how many workers may run there.

    Args:
        host: As ssh takes it: a name, an alias or an address (IPv6 without brackets), perhaps with ``user@`` before it.
        slots: How many workers, at least 1.
    """

    host: str
    slots: int = 1

    @property
    def name(self) -> str:
        """The host without the user."""
        return self.host.rpartition("@")[2]


def read_hosts(text: str) -> tuple[HostSlots, ...]:
    """The hosts that the comma-separated `text` names, in its order.

    A host without a number has one slot. One that is named again gets the sum of its slots, at the place where it was
    named first, as `mpirun` does it.

    >>> read_hosts("a:2,ann@b,[::1]:3,a")
    (HostSlots(host='a', slots=3), HostSlots(host='ann@b', slots=1), HostSlots(host='::1', slots=3))

    Raises:
        ConfigurationError: `text` is wrong; the message has every fault. Nothing else, whatever the text.
    """
    faults = FaultList(_SETTING, "[hosts]")
    read = [read_host(f"host {number}", entry.strip()) for number, entry in enumerate(text.split(","), 1)]
    for fault in read:
        if isinstance(fault, Fault):
            faults.append(fault)
    if faults:
        raise faults.error()
    return joined(host for host in read if isinstance(host, HostSlots))


def read_host(field: str, text: str) -> HostSlots | Fault:
    """The host and slots that `text` is, or what is wrong with it; `field` is where the user wrote it."""
    user, at, rest = text.rpartition("@")
    if at and _USER.fullmatch(user) is None:
        return Fault(field, shown(text), "a user name before the '@'", 'write it like "ann@host0:2"')
    if "://" in text:
        return Fault(field, shown(text), f"{_EXPECTED}, without a scheme", f"write {shown(text.rpartition('/')[2])}")
    bracketed = _BRACKETED.fullmatch(rest)
    if bracketed is not None:
        host, slots = bracketed["host"], bracketed["slots"]
        known = is_ipv6(host)
    elif rest.count(":") > 1:
        return Fault(field, shown(text), _EXPECTED, 'put an IPv6 address in brackets, as in "[fd00::7]:2"')
    else:
        host, colon, after = rest.partition(":")
        slots = after if colon else None
        known = is_host(host) and not host.startswith("-")  # ssh would take it for one of its options
    if not known:
        fix = "write one host between two commas, such as host0:2"
        return Fault(field, shown(text) if text else "nothing", _EXPECTED, fix)
    if slots is None:
        return HostSlots(f"{user}{at}{host}")
    number = read_slots(field, slots)
    return number if isinstance(number, Fault) else HostSlots(f"{user}{at}{host}", number)


def read_slots(field: str, text: str) -> int | Fault:
    """The number of slots that `text` is, or what is wrong with it."""
    if _SLOTS.fullmatch(text) is None or not 1 <= int(text) <= MAX_SLOTS:
        expected = f"a number of workers from 1 to {MAX_SLOTS}"
        fix = "write how many workers the host runs, not a port (--ssh-port has that); leave a host without any out"
        return Fault(field, shown(text) if text else "nothing", expected, fix)
    return int(text)


def joined(hosts: Iterable[HostSlots]) -> tuple[HostSlots, ...]:
    """Each host once, where it was named first, with the sum of its slots."""
    slots: dict[str, int] = {}
    for one in hosts:
        slots[one.host] = slots.get(one.host, 0) + one.slots
    return tuple(HostSlots(host, count) for host, count in slots.items())


def place_ranks(
    hosts: Sequence[HostSlots], world_size: int | None
) -> tuple[tuple[HostSlots, ...], tuple[HostSlots, ...]]:
    """Which host runs how many ranks, and which hosts stay spare.

    Hosts are filled in the order given; ranks follow that order, then the number on their host. A host of which only
    some slots are needed is not spare.

    Args:
        hosts: At least one, each once.
        world_size: Number of workers; None: one for every slot.

    Returns:
        The hosts that are used, with the number of *ranks* in `slots`, and the spare ones as they were given.

    >>> hosts = read_hosts("a:2,b:2,c:2")
    >>> place_ranks(hosts, 3)
    ((HostSlots(host='a', slots=2), HostSlots(host='b', slots=1)), (HostSlots(host='c', slots=2),))

    Raises:
        ConfigurationError: there are more workers than slots, or none.
    """
    all_slots = sum(host.slots for host in hosts)
    wanted = all_slots if world_size is None else world_size
    if not 1 <= wanted <= all_slots:
        names = ", ".join(f"{host.host}:{host.slots}" for host in hosts)
        raise ConfigurationError(
            f"received {wanted} workers for {all_slots} slots ({names}); expected from 1 to {all_slots}. Fix: give a "
            "host more slots (host:slots), name another host, or start fewer workers (--workers). [hosts]"
        )
    used: list[HostSlots] = []
    for host in hosts:
        if wanted:
            used.append(HostSlots(host.host, min(host.slots, wanted)))
            wanted -= used[-1].slots
    return tuple(used), tuple(hosts[len(used) :])


def read_hostfile(text: str, name: str = "the hostfile") -> tuple[HostSlots, ...]:
    """The hosts that the `text` of a hostfile names, in its order.

    A line is ``host``, ``host:2`` or ``host slots=2``; a ``#`` begins a comment, empty lines are skipped. A host
    without a number has one slot, and one on several lines the sum of its slots, at the place where it was named first
    (Open MPI's rule: a host may simply be repeated). Open MPI's ``max_slots=`` bounds oversubscription, which Paceline
    never does: it is accepted where it is no less than the slots, and has no effect.

    >>> read_hostfile("node1 slots=4  # the big one\\nnode2\\nnode2\\n")
    (HostSlots(host='node1', slots=4), HostSlots(host='node2', slots=2))

    Args:
        text: What the file holds.
        name: The file, for messages.

    Raises:
        ConfigurationError: `text` is wrong; the message has every fault and its line. Nothing else, whatever the text.
    """
    faults = FaultList(name, "[hosts]")
    hosts = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        words = _AROUND_EQUALS.sub("=", line.partition("#")[0].strip()).split()
        if words:
            host = _read_line(f"line {number}", words)
            if isinstance(host, Fault):
                faults.append(host)
            else:
                hosts.append(host)
    if not hosts and not faults:
        faults.add(
            "the whole file", "no host", f"one host a line: {_EXPECTED_LINE}", "write the first line: host0 slots=2"
        )
    if faults:
        raise faults.error()
    return joined(hosts)


def _read_line(field: str, words: list[str]) -> HostSlots | Fault:
    host = read_host(field, words[0])
    if isinstance(host, Fault):
        return host
    numbers: dict[str, int] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or key not in (_SLOTS_KEY, *_MOST_SLOTS):
            fix = "leave it out; users, ports and keys of hosts belong into the ssh configuration"
            return Fault(field, shown(word), f"{_EXPECTED_LINE}, nothing after it", fix)
        if key in numbers or (key == _SLOTS_KEY and _HAS_SLOTS.search(words[0])):
            return Fault(field, shown(" ".join(words)), "the number of slots once", f"write {_EXPECTED_LINE}")
        number = read_slots(field, value)
        if isinstance(number, Fault):
            return number
        numbers[key] = number
    slots = numbers.pop(_SLOTS_KEY, host.slots)
    if any(most < slots for most in numbers.values()):
        fix = "lower slots, or leave max_slots out: more workers than slots never run"
        return Fault(field, shown(" ".join(words)), f"max_slots of {slots} or more", fix)
    return HostSlots(host.host, slots)
