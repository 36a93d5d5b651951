"""With which code a node ends that was told to stop, when node 0 is gone before it could say."""

import asyncio
import signal
import socket
from dataclasses import replace

import pytest

from paceline.cluster.job_options import JobOptions
from paceline.cluster.spec import Address
from paceline.launcher.hosts.node import Node
from paceline.launcher.job import JobDescription, Program
from paceline.launcher.other_hosts import Nodes
from paceline.launcher.output.worker_logs import WorkerLogs
from paceline.launcher.output.worker_output import OwnOutput
from paceline.rendezvous import channel
from paceline.rendezvous.agent_messages import Spoke
from paceline.rendezvous.dialing import Reached
from paceline.wire.frames import FrameSplitter, Seal
from paceline.wire.handshake import Identity

LIMIT_SECONDS = 60.0
KEPT = JobOptions(snapshot_dir="/kept")


async def served(
    options: JobOptions, said: list[channel.Message], number: signal.Signals | None
) -> tuple[int, bool, Node]:
    """Serves a node 0 that goes within a generation, after the signal `number`."""
    program = Program(__file__)
    job = JobDescription(
        command=program.command(),
        num_workers=1,
        environment={},
        program=program,
        options=replace(options, max_restarts=1),
    )
    node = Node(job, Nodes(num_nodes=2, node_rank=1, rendezvous=Address("127.0.0.1", 1), key=b"k"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    reached = Reached(ours, FrameSplitter(), Seal(b"k", is_initiator=True), Identity(0, "a", 1))
    loop = asyncio.get_running_loop()
    with theirs, WorkerLogs(None) as logs:
        serving = loop.create_task(node._serve(loop, reached, OwnOutput(loop, node._screen, logs)))
        await asyncio.sleep(0)
        assert node._agent is not None
        node._agent._in_generation = True
        for message in said:
            node._agent.report(Spoke(1, message))
        if number is not None:
            node._interrupt(number)
        theirs.close()
        code, again = await asyncio.wait_for(serving, LIMIT_SECONDS)
    return code, again, node


@pytest.mark.parametrize(
    ("options", "said", "number", "code"),
    [
        (KEPT, [], signal.SIGTERM, 75),
        (JobOptions(), [channel.KeepsSnapshots()], signal.SIGTERM, 75),
        (JobOptions(), [], signal.SIGTERM, 143),
        (KEPT, [], signal.SIGINT, 130),
        (KEPT, [], None, 69),
    ],
)
def test_a_node_that_was_told_to_stop_says_so_although_node_0_is_gone(
    options: JobOptions, said: list[channel.Message], number: signal.Signals | None, code: int
) -> None:
    """A scheduler that evicts all hosts ends node 0 first as often as not: 69, and the job did not go back to it."""
    got, again, _ = asyncio.run(served(options, said, number))
    assert got == code
    assert again == (number is None)


def test_a_node_that_waits_for_another_node_0_remembers_that_snapshots_are_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def waited() -> int:
        _, _, node = await served(JobOptions(), [channel.KeepsSnapshots()], None)

        async def nobody(_: asyncio.AbstractEventLoop) -> Reached:
            node._interrupt(signal.SIGTERM)
            await asyncio.sleep(LIMIT_SECONDS)
            raise AssertionError("it was not told")

        monkeypatch.setattr(node, "_dialled", nobody)
        return await asyncio.wait_for(node.run(), LIMIT_SECONDS)

    assert asyncio.run(waited()) == 75
    assert "paceline: stopped by SIGTERM, while no worker was running on this host." in capsys.readouterr().err
