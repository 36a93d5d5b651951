"""Each host is looked for by the one before it, at every address that it has."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from paceline.cluster.spec import Address
from paceline.launcher.hosts.gathering import NotGatheredError
from paceline.launcher.hosts.interfaces import reached_interfaces
from paceline.launcher.workers.crew import Crew, CrewListener
from paceline.rendezvous.agent_messages import Begin, HostFacts, Interface, Order


class Looker(Crew):
    """A crew whose host reaches some addresses; nothing else is asked of it here."""

    def __init__(self, name: str, interfaces: Mapping[str, str], *reaches: str, machine: str = "") -> None:
        described = tuple(Interface(*one) for one in interfaces.items())
        self._facts = HostFacts(name, machine or name, 1, None, None, 1, {}, "", (), (1,), described, 4000)
        self._reaches = reaches
        self.looked_for: list[str] = []
        self.is_gone = False

    @property
    def facts(self) -> HostFacts:
        return self._facts

    async def look(self, target: HostFacts, addresses: Sequence[Address], key: bytes) -> tuple[str, ...]:
        if self.is_gone:
            raise ConnectionError("is gone: it was closed")
        assert {address.port for address in addresses} <= {4000}
        self.looked_for.append(target.hostname)
        return tuple("" if address.host in self._reaches else "timed out" for address in addresses)

    async def newest_snapshot(self, directory: str) -> str:
        raise AssertionError(directory)

    @property
    def shows_own_output(self) -> bool:
        return False

    def begin(self, order: Begin, listener: CrewListener) -> None: ...
    def obey(self, order: Order) -> None: ...
    def close(self) -> None: ...
    async def finish(self) -> None: ...


def reached(*crews: Looker, known: dict[Crew, Interface] | None = None) -> list[str]:
    found = asyncio.run(reached_interfaces(crews, {} if known is None else known, b"k"))
    return [one.name for one in found]


def test_the_first_interface_that_answers_is_taken_host_by_host():
    a = Looker("a", {"docker0": "172.17.0.1", "eth0": "10.0.0.1"}, "10.0.0.2")
    b = Looker("b", {"docker0": "172.17.0.1", "ib0": "10.0.0.2", "lo": "127.0.0.1"}, "10.0.0.3", "127.0.0.1")
    c = Looker("c", {"eth1": "10.0.0.3"}, "10.0.0.1")
    assert reached(a, b, c) == ["eth0", "ib0", "eth1"]
    assert (a.looked_for, b.looked_for, c.looked_for) == (["b"], ["c"], ["a"])


def test_agents_of_one_machine_need_no_interface():
    crews = [Looker("a", {}, machine="m"), Looker("b", {}, machine="m")]
    assert reached(*crews) == ["", ""]
    assert crews[0].looked_for == []


def test_what_an_earlier_generation_found_is_not_looked_for_again():
    a, b = Looker("a", {"eth0": "10.0.0.1"}, "10.0.0.2", "10.0.0.3"), Looker("b", {"eth0": "10.0.0.2"}, "10.0.0.1")
    known: dict[Crew, Interface] = {}
    assert reached(a, b, known=known) == ["eth0", "eth0"]
    c = Looker("c", {"eth9": "10.0.0.3"}, "10.0.0.1")
    assert reached(a, c, known=known) == ["eth0", "eth9"]
    assert (a.looked_for, c.looked_for) == (["b", "c"], [])


def test_a_host_that_is_not_reached_is_told_with_all_that_was_tried():
    a, b = Looker("a", {"eth0": "10.0.0.1"}), Looker("b", {"eth0": "10.0.0.2", "lo": "127.0.0.1"}, "10.0.0.1")
    with pytest.raises(NotGatheredError) as caught:
        reached(a, b)
    (line,) = caught.value.lines
    assert line.startswith(
        "paceline: host a cannot reach host b at any of its addresses: eth0 10.0.0.2 (timed out); "
        "lo 127.0.0.1 (timed out)."
    )
    assert "--network-interface" in line


def test_a_host_without_any_interface_is_told():
    with pytest.raises(NotGatheredError, match="any of its addresses: it has none"):
        reached(Looker("a", {"eth0": "10.0.0.1"}), Looker("b", {}, "10.0.0.1"))


def test_a_looker_that_is_gone_is_told():
    a, b = Looker("a", {"eth0": "10.0.0.1"}, "10.0.0.2"), Looker("b", {"eth0": "10.0.0.2"}, "10.0.0.1")
    b.is_gone = True
    with pytest.raises(NotGatheredError, match="host b is gone"):
        reached(a, b)
