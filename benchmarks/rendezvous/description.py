"""The job whose hosts meet here, as its head and its agents are given it."""

import argparse
from pathlib import Path

from msgspec.structs import replace

from paceline.cluster.spec import Address
from paceline.launcher.hosts.host_facts import comparable_facts
from paceline.launcher.hosts.interfaces import own_interfaces
from paceline.launcher.job import JobDescription, Program
from paceline.launcher.other_hosts import Nodes
from paceline.rendezvous.agent_messages import HostFacts

RANKS_PER_AGENT = 8
_SCRIPT = str(Path(__file__).parents[1] / "launch" / "noop.py")


def arguments() -> argparse.ArgumentParser:
    """What head and agents are told on their command lines; the key is this benchmark's own, and no secret."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    return parser


def job(told: argparse.Namespace, node_rank: int) -> JobDescription:
    """The job as node `node_rank` sees it: eight workers there, one on node 0."""
    program = Program(_SCRIPT)
    return JobDescription(
        command=program.command(),
        program=program,
        num_workers=RANKS_PER_AGENT if node_rank else 1,
        environment={},
        network_interface="lo",
        nodes=Nodes(
            num_nodes=told.nodes,
            node_rank=node_rank,
            rendezvous=Address("127.0.0.1", told.port),
            key=bytes.fromhex(told.key),
        ),
    )


def facts(one: JobDescription, probe_port: int) -> HostFacts:
    """Of one of the hosts; each says that it is a machine of its own, or nobody would be asked to look for anybody."""
    assert one.nodes is not None
    found = comparable_facts(one, own_interfaces(one.network_interface, ""), probe_port)
    return replace(found, machine_id=f"machine {one.nodes.node_rank}")
