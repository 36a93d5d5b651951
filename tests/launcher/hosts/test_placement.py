"""Ranks go host by host in the order given, then by local rank."""

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.job_options import JobOptions
from paceline.cluster.launched import slot_holders
from paceline.cluster.spec import ROLES, Address, ClusterSpec, Role
from paceline.launcher.hosts.placement import Station, generation_orders
from paceline.launcher.job import JobDescription
from paceline.rendezvous.agent_messages import Begin, HostFacts, Interface


def facts(machine: str, ports: tuple[int, ...], hostname: str = "") -> HostFacts:
    return HostFacts(hostname or machine, machine, 1, None, None, len(ports), {}, "", (), ports, (), 0)


def orders_of(*stations: Station, roles: Sequence[Role] = (), num_ps: int | None = None) -> tuple[Begin, ...]:
    job = JobDescription(
        command=("python",), num_workers=1, environment={}, roles=tuple(roles), options=JobOptions(ps=num_ps)
    )
    cast = job.cast(sum(station.num_workers for station in stations))
    return generation_orders(stations, job_id="ab", generation=3, seed=7, variables={"A": "b"}, cast=cast)


def test_two_hosts():
    a, b = orders_of(
        Station(facts("a", (11, 12)), 2, Interface("eth0", "10.0.0.1")),
        Station(facts("b", (21, 22, 23)), 1, Interface("eth1", "10.0.0.2")),
    )
    assert [one.rank for one in a.identities] == [0, 1]
    assert [one.rank for one in b.identities] == [2]
    assert [(one.local_rank, one.local_world_size) for one in (*a.identities, *b.identities)] == [
        (0, 2),
        (1, 2),
        (0, 1),
    ]
    addresses = (Address("10.0.0.1", 11), Address("10.0.0.1", 12), Address("10.0.0.2", 21))
    assert a.cluster == b.cluster == {"worker": addresses}
    assert (a.interface, b.interface) == ("eth0", "eth1")
    assert a.environment == {"A": "b"}
    assert {(one.generation, one.job_id, one.seed) for one in a.identities} == {(3, "ab", 7)}


def test_agents_of_one_machine_count_their_local_ranks_through():
    interface = Interface("", "127.0.0.1")
    stations = [Station(facts("a", (1, 2)), 2, interface), Station(facts("a", (3,)), 1, interface)]
    identities = [one for order in orders_of(*stations) for one in order.identities]
    assert [(one.local_rank, one.local_world_size) for one in identities] == [(0, 3), (1, 3), (2, 3)]


def test_roles_beside_the_workers_go_round_the_hosts():
    roles = [ROLES["ps"], ROLES["chief"], ROLES["evaluator"], ROLES["ps"]]
    a, b = orders_of(
        Station(facts("a", tuple(range(11, 17))), 1, Interface("eth0", "10.0.0.1")),
        Station(facts("b", (21, 22)), 1, Interface("eth1", "10.0.0.2")),
        roles=roles,
    )
    assert [(one.label, str(one.task), one.in_world) for one in a.identities] == [
        ("0", "chief 0", True),
        ("ps 0", "ps 0", False),
        ("evaluator 0", "evaluator 0", False),
    ]
    assert [(one.label, str(one.task), one.in_world) for one in b.identities] == [
        ("1", "worker 0", True),
        ("ps 1", "ps 1", False),
    ]
    assert a.cluster == b.cluster
    ports = {role: [address.port for address in addresses] for role, addresses in a.cluster.items()}
    assert ports == {"chief": [11], "worker": [21], "ps": [12, 22], "evaluator": [13]}
    told = json.loads(ClusterSpec(a.cluster).to_tf_config(b.identities[-1].task))
    assert told["task"] == {"type": "ps", "index": 1}
    assert sorted(told["cluster"]) == ["chief", "ps", "worker"]  # as in TensorFlow, an evaluator is in no cluster


def test_workers_beside_parameter_servers_are_placed_by_slots():
    a, b = orders_of(
        Station(facts("a", tuple(range(11, 17))), 2, Interface("eth0", "10.0.0.1")),
        Station(facts("b", tuple(range(21, 27))), 1, Interface("eth1", "10.0.0.2")),
        num_ps=3,
    )
    assert [(one.label, one.rank, one.local_rank, one.local_world_size) for one in a.identities] == [
        ("chief", 0, 0, 1),
        ("worker 0", 1, 0, 2),
        ("worker 1", 2, 1, 2),
        ("ps 0", 4, 0, 1),
        ("ps 2", 6, 0, 1),
    ]
    assert [(one.label, one.rank, one.local_rank, one.local_world_size) for one in b.identities] == [
        ("worker 2", 3, 0, 1),
        ("ps 1", 5, 0, 1),
    ]
    assert {one.world_size for one in (*a.identities, *b.identities)} == {1}
    assert [str(one.task) for one in slot_holders(a.identities)] == ["worker 0", "worker 1"]
    addresses = {role: [str(address) for address in addresses] for role, addresses in b.cluster.items()}
    assert addresses == {
        "chief": ["10.0.0.1:11"],
        "worker": ["10.0.0.1:12", "10.0.0.1:13", "10.0.0.2:21"],
        "ps": ["10.0.0.1:14", "10.0.0.2:22", "10.0.0.1:15"],
    }


STATIONS = st.lists(
    st.builds(
        lambda machine, slots, used, number: (machine, slots, min(used, slots), number),
        st.sampled_from("abc"),
        st.integers(1, 5),
        st.integers(1, 5),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=6,
)


@given(STATIONS)
def test_every_rank_has_one_place_and_one_address(described):
    stations = [
        Station(
            facts(machine, tuple(range(100 * index, 100 * index + slots))), used, Interface("e", f"10.0.0.{number}")
        )
        for index, (machine, slots, used, number) in enumerate(described)
    ]
    orders = orders_of(*stations)
    identities = [one for order in orders for one in order.identities]
    assert [one.rank for one in identities] == list(range(sum(used for _, _, used, _ in described)))
    assert {one.world_size for one in identities} == {len(identities)}
    assert all(len(order.cluster["worker"]) == len(identities) for order in orders)
    machines = [machine for machine, _, used, _ in described for _ in range(used)]
    for machine in set(machines):
        local = [one for one, at in zip(identities, machines, strict=True) if at == machine]
        assert [one.local_rank for one in local] == list(range(len(local)))
        assert {one.local_world_size for one in local} == {len(local)}
    for order, station in zip(orders, stations, strict=True):
        for one in order.identities:
            assert order.cluster["worker"][one.rank].host == station.interface.address
            assert order.cluster["worker"][one.rank].port in station.facts.ports
