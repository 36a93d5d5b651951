"""Node 0 of a job that each host was given, with agents in this process."""

import asyncio
import os
from typing import Any

from msgspec.structs import replace

from paceline.cluster.spec import Address
from paceline.launcher.hosts.link import Link
from paceline.launcher.hosts.node_hosts import NodeHosts
from paceline.launcher.job import JobDescription, Program
from paceline.launcher.other_hosts import Nodes
from paceline.rendezvous.agent_messages import Here, HostFacts, Message, Refused
from paceline.rendezvous.connection import Connection
from paceline.rendezvous.dialing import dial

LIMIT_SECONDS = 60.0
KEY = b"k" * 32


class OwnCrew:
    """Node 0's own workers, which nobody starts."""

    def __init__(self, facts: HostFacts) -> None:
        self.facts = facts

    def close(self) -> None: ...


async def came(address: Address, facts: HostFacts) -> tuple[Link, "asyncio.Future[Message | str]"]:
    """An agent that has said who it is, and what it hears first: a message, or why the line ended."""
    loop = asyncio.get_running_loop()
    reached = await asyncio.to_thread(dial, address, KEY, LIMIT_SECONDS)
    link = Link(loop, Connection(loop, reached.connected, reached.splitter, reached.seal))
    heard: asyncio.Future[Message | str] = loop.create_future()

    def hear(said: Message | str) -> None:
        if not heard.done():
            heard.set_result(said)

    link.start(hear, hear)
    link.send(Here(facts))
    return link, heard


def test_a_node_that_comes_back_keeps_its_number_of_workers(free_port: int) -> None:
    """The ranks of a job are counted in its first generation; with others the next one never ended."""

    async def job() -> None:
        loop = asyncio.get_running_loop()
        address = Address("127.0.0.1", free_port)
        nodes = Nodes(num_nodes=2, node_rank=0, rendezvous=address, key=KEY)
        described = JobDescription(
            command=("true",), num_workers=2, environment={}, program=Program("t.py", is_module=True), nodes=nodes
        )
        crews: list[OwnCrew] = []
        said: list[str] = []

        def own_crew(facts: HostFacts) -> Any:
            crews.append(OwnCrew(facts))
            return crews[0]

        hosts = NodeHosts(loop, described, nodes, own_crew, said.append)
        facts = replace(crews[0].facts, node_rank=1, pid=os.getpid())
        gathered = asyncio.create_task(hosts.gather(1))
        first, _ = await came(address, facts)
        assert [member.num_workers for member in await asyncio.wait_for(gathered, LIMIT_SECONDS)] == [2, 2]
        first.fail("is gone")  # `close` would wait for the other end, which is in this loop

        gathered = asyncio.create_task(hosts.gather(2))
        fewer, heard = await came(address, replace(facts, num_workers=1))
        denied = await asyncio.wait_for(heard, LIMIT_SECONDS)
        assert isinstance(denied, Refused)
        assert denied.exit_code == 78
        assert denied.message.startswith(
            f"--workers: received 1 on host {facts.hostname}, but node 1 began this job with 2"
        )
        assert said == [f"host {facts.hostname} was refused: {denied.message}"]
        fewer.fail("is gone")
        beside_servers, heard = await came(address, replace(facts, num_ps=2))
        denied = await asyncio.wait_for(heard, LIMIT_SECONDS)
        assert isinstance(denied, Refused)
        assert denied.message.startswith(f"--ps: received 2 on host {facts.hostname}, but 0 on node 0 (host ")
        beside_servers.fail("is gone")
        again, _ = await came(address, facts)
        assert [member.num_workers for member in await asyncio.wait_for(gathered, LIMIT_SECONDS)] == [2, 2]
        await hosts.close(0)
        again.close()

    asyncio.run(job())
