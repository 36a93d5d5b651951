"""``python -m paceline.launcher.attached_agent LINE_FD PMI_FD PID``: the agent beside the worker PID, started by hand.

    worker ── Attach ──► own port ─┬─ rank 0: the head (head.py), whose hosts are the agents at TF_CONFIG's addresses
                                   └─ others: dial ──rank 0 answers──► serve it as a host's agent does (host_agent.py)
                                                ▲                          │
                                                └── rank 0 has gone, and the job had not begun ──┘

Started by `paceline.rendezvous.attaching`, never by a person. It imports no TensorFlow, no MPI and nothing of the
command line, and starts while its worker imports TensorFlow.
"""

import asyncio
import contextlib
import os
import select
import signal
import socket
import sys
import traceback

from paceline.errors import EXIT_UNAVAILABLE, ConfigurationError
from paceline.launcher.event_loop import in_background
from paceline.launcher.hosts.host_agent import HostAgent
from paceline.launcher.hosts.link import Link
from paceline.launcher.hosts.waiting_lines import WaitingLines, timeout_message, waiting_for_head
from paceline.launcher.workers.address_check import claim_own_port
from paceline.launcher.workers.attached_crew import AttachedCrew
from paceline.launcher.workers.crew import START_AGAIN
from paceline.rendezvous.agent_messages import Begin, Here, HostFacts, Message, Refused, Terminate, Waiting
from paceline.rendezvous.channel import Attach, decode_attach
from paceline.rendezvous.connection import Connection
from paceline.rendezvous.dialing import Reached, UnreachableError, dial, dial_seconds
from paceline.rendezvous.listener import Listener
from paceline.wire.frames import line as line_of
from paceline.wire.frames import receive_line
from paceline.wire.handshake import Identity

_FIRST_RETRY_SECONDS = 0.1
_LONGEST_RETRY_SECONDS = 1.0
_HEAD_FIRST_SECONDS = 2.0
"""By how much the head's verdict may come after this rank's own deadline: the head knows more."""

_ORPHAN_LOOK_SECONDS = 1.0


class DeniedError(Exception):
    """This rank does not join; `refused` says why."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused


class _ServingAgent(HostAgent):
    """A host's agent whose workers are one that was attached.

    Args:
        loop: The running event loop.
        link: To the head.
        attach: What the worker has asked for.
        crew: The worker.
        port: Answers who looks for this rank, until the job begins.
        lines: Say who is missing, until then.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        link: Link,
        attach: Attach,
        crew: AttachedCrew,
        port: Listener,
        lines: WaitingLines,
    ) -> None:
        super().__init__(loop, link, crew.facts, lambda *_: crew, port)
        self._attach = attach
        self._attached = crew
        self._lines = lines
        self.job_id: str | None = None
        """Once it has begun."""

    def hear(self, message: Message) -> None:
        """See `HostAgent.hear`."""
        match message:
            case Waiting():
                self._lines.report(message)
            case Begin(identities=[identity]):
                self.job_id = identity.job_id
                self._lines.stop()
        super().hear(message)

    def lose(self, reason: str) -> None:
        """See `HostAgent.lose`."""
        if self.job_id is not None:
            head, address = self._attach.addresses[0].host, self._attach.addresses[0]
            why = f"was stopped, because rank 0 ({head}, {address}) {reason}. {START_AGAIN} [rank-lost]"
            self._attached.obey(Terminate((self._attach.rank,), why))
        super().lose(reason)


class Agent:
    """Beside one worker.

    Args:
        loop: The running event loop.
        attach: What it has asked for.
        line: To it.
        pmi: To its MPI.
        port: Listens at its address.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        attach: Attach,
        line: socket.socket,
        pmi: socket.socket,
        port: socket.socket,
    ) -> None:
        self._loop = loop
        self._attach = attach
        self._port = port
        self._crew = AttachedCrew(loop, attach, line, pmi, _facts(attach), say)
        self._lines = WaitingLines(loop, attach, say)

    async def run(self) -> None:
        """Serves the worker until it is gone or needs nothing more."""
        job_id = await (self._lead() if self._attach.rank == 0 else self._follow())
        if job_id is not None:
            await self._crew.is_over.wait()
            from paceline.cluster.job_directory import remove_job_directory  # no start waits for it

            remove_job_directory(job_id)

    async def _lead(self) -> str | None:
        """As the head; the job's name if the job has begun."""
        # Only here: the agents of the other ranks start without them.
        from paceline.launcher.head import Head
        from paceline.launcher.hosts.cluster_hosts import ClusterHosts, job_of

        attach = self._attach
        job_id = os.urandom(6).hex()
        hosts = ClusterHosts(self._loop, attach, self._port, self._crew, self._lines)
        # Its words go nowhere: each agent says to the user of its own worker what concerns that one.
        await Head(job_of(attach), job_id, lambda *_: hosts, words=sys.stdout).run()
        return job_id if hosts.has_begun else None

    async def _follow(self) -> str | None:
        """As the agent of a rank behind the head; the job's name if the job has begun."""
        attach = self._attach
        identity = Identity(attach.rank, attach.hostname, os.getpid())
        listener = Listener(self._loop, self._port, attach.key, identity)
        listener.start()
        following = self._loop.create_task(self._join(listener))

        def stop() -> None:
            following.cancel()

        self._crew.on_end = stop
        try:
            return await following
        except asyncio.CancelledError:
            return None
        except DeniedError as denied:
            self._crew.refuse(denied.refused)
            return None
        finally:
            listener.close()
            self._lines.stop()

    async def _join(self, listener: Listener) -> str | None:
        deadline = self._loop.time() + self._attach.start_timeout_seconds
        reason, gone = "no answer yet", ""
        pause_seconds = _FIRST_RETRY_SECONDS
        while True:
            self._lines.report(waiting_for_head(self._attach, reason + gone, deadline - self._loop.time()))
            try:
                reached = await self._dialled()
            except UnreachableError as fault:
                reason = fault.reason
            else:
                job_id = await self._serve(reached, listener, deadline)
                if job_id is not None:
                    return job_id
                reason, gone = "no answer", "; it had answered, and is gone: start it again"
            if self._loop.time() >= deadline:
                waiting = waiting_for_head(self._attach, reason, 0.0)
                raise DeniedError(Refused(timeout_message(self._attach, waiting), EXIT_UNAVAILABLE))
            await asyncio.sleep(min(pause_seconds, max(0.0, deadline - self._loop.time())))
            pause_seconds = min(_LONGEST_RETRY_SECONDS, pause_seconds * 1.5)

    async def _dialled(self) -> Reached:
        """A connection to rank 0.

        Raises:
            UnreachableError: there is none yet.
            DeniedError: there never will be.
        """
        address, key = self._attach.addresses[0], self._attach.key
        seconds = dial_seconds(self._attach.start_timeout_seconds)
        try:
            reached = await in_background(lambda: dial(address, key, seconds))
        except UnreachableError as fault:
            if fault.is_other_version:
                text = f"rank 0 at {address} cannot be joined: {fault.reason}. [hosts-differ]"
                raise DeniedError(Refused(text)) from fault
            raise
        found = reached.identity
        if found.rank == 0:
            return reached
        reached.connected.close()
        raise UnreachableError(f"rank {found.rank} of this job answers there, on host {found.hostname}")

    async def _serve(self, reached: Reached, listener: Listener, deadline: float) -> str | None:
        """Serves rank 0 while it is there; the job's name if the job had begun.

        Raises:
            DeniedError: rank 0 will not have this one, or not all have come in time.
        """
        link = Link(self._loop, Connection(self._loop, reached.connected, reached.splitter, reached.seal))
        agent = _ServingAgent(self._loop, link, self._attach, self._crew, listener, self._lines)
        late = self._loop.call_at(deadline + _HEAD_FIRST_SECONDS, self._give_up_waiting, agent)
        before, self._crew.on_end = self._crew.on_end, agent.stop
        link.start(agent.hear, agent.lose)
        link.send(Here(self._crew.facts, deadline - self._loop.time(), self._attach.allow_mismatch))
        code = await agent.run()
        late.cancel()
        link.close()
        self._crew.on_end = before
        if agent.job_id is None and self._crew.has_ended:
            raise asyncio.CancelledError
        if agent.denied_because is not None:
            raise DeniedError(Refused(agent.denied_because, code))
        return agent.job_id

    def _give_up_waiting(self, agent: _ServingAgent) -> None:
        if agent.job_id is None and self._lines.state is not None:
            agent.hear(Refused(timeout_message(self._attach, self._lines.state), EXIT_UNAVAILABLE))


def _facts(attach: Attach) -> HostFacts:
    return HostFacts(
        hostname=attach.hostname,
        machine_id=attach.hostname,
        pid=os.getpid(),
        node_rank=attach.rank,
        num_nodes=len(attach.addresses),
        num_workers=1,
        versions=attach.versions,
        script="",
        arguments=(),
        ports=(attach.addresses[attach.rank].port,),
        interfaces=(),
        probe_port=0,
        cluster_digest=attach.cluster_digest,
    )


def main(arguments: list[str]) -> None:
    """Serves the worker that started this process; `arguments` are the two inherited descriptors and its number."""
    # Its life is its worker's; a terminal or a scheduler signals both.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    *descriptors, worker_pid = map(int, arguments)
    line, pmi = (socket.socket(fileno=descriptor) for descriptor in descriptors)
    while not select.select([line], [], [], _ORPHAN_LOOK_SECONDS)[0]:
        if os.getppid() != worker_pid:  # it is gone, and a child that it has forked may hold the line
            return
    try:
        attach = decode_attach(receive_line(line, None))
    except ConnectionError:  # the worker is gone, or has no need of an agent
        return
    try:
        port = claim_own_port(attach)
    except ConfigurationError as fault:
        with contextlib.suppress(OSError):  # the worker is gone: nobody is left to tell
            line.sendall(line_of(Refused(str(fault))))
        return
    try:
        with asyncio.Runner() as runner:
            runner.run(Agent(runner.get_loop(), attach, line, pmi, port).run())
    except Exception:
        # Peers take this rank for dead now, so it must not wait in a collective for ever.
        say(f"paceline: the agent of rank {attach.rank} failed, so the rank ends\n{traceback.format_exc()}")
        if os.getppid() == attach.worker_pid:
            os.kill(attach.worker_pid, signal.SIGKILL)


def say(text: str) -> None:
    """Prints `text` on the worker's stderr, in one write so that ranks that share a terminal do not mix."""
    with contextlib.suppress(OSError):  # the terminal is gone
        os.write(2, f"{text}\n".encode(errors="backslashreplace"))


if __name__ == "__main__":
    main(sys.argv[1:])
