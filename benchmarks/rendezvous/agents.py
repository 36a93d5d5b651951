"""Some of the job's agents: Paceline's own, but with workers that are only told of.

Prints "ready", waits for a line of input, and at the end prints a JSON object with the times of its first dial and of
the last release out of MPI's barriers, on the system's monotonic clock, which all processes share.
"""

import asyncio
import json
import sys
import time

import description
from told_crew import ToldCrew

from paceline.launcher.hosts.host_agent import HostAgent
from paceline.launcher.hosts.link import Link
from paceline.launcher.job import JobDescription
from paceline.launcher.workers.address_check import Probe
from paceline.rendezvous.agent_messages import Here
from paceline.rendezvous.connection import Connection
from paceline.rendezvous.dialing import dial

_DIAL_SECONDS = 30.0


class Agent:
    """One host's; what it says of itself is ready before it dials."""

    def __init__(self, loop: asyncio.AbstractEventLoop, job: JobDescription) -> None:
        assert job.nodes is not None
        self._loop = loop
        self._job = job
        self._nodes = job.nodes
        self._probe = Probe(loop, job.nodes.key)
        self._facts = description.facts(job, self._probe.port)
        self._probe.start()

    async def run(self) -> tuple[float, float]:
        """Serves the head to the end; when it dialled, and when its ranks were released."""
        dialled_at = time.monotonic()
        reached = await asyncio.to_thread(dial, self._nodes.rendezvous, self._nodes.key, _DIAL_SECONDS)
        link = Link(self._loop, Connection(self._loop, reached.connected, reached.splitter, reached.seal))
        crew = ToldCrew(self._facts)
        agent = HostAgent(self._loop, link, self._facts, lambda *_: crew, self._probe)
        link.start(agent.hear, agent.lose)
        link.send(Here(self._facts))
        code = await agent.run()
        self._probe.close()
        link.close()
        if code != 0:
            raise RuntimeError(f"exit code {code}: {agent.denied_because or agent.lost_because}")
        return dialled_at, crew.released_at


async def serve() -> None:
    parser = description.arguments()
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    told = parser.parse_args()
    loop = asyncio.get_running_loop()
    agents = [Agent(loop, description.job(told, told.first + number)) for number in range(told.count)]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    dialled, released = zip(*await asyncio.gather(*(agent.run() for agent in agents)), strict=True)
    print(json.dumps({"dialled": min(dialled), "released": max(released)}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
