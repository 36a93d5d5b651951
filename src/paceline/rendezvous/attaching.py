"""The worker's side of a job that was started by hand, one process per terminal, with TF_CONFIG and no launcher: the
worker starts an agent, which attaches to it and joins the job's head (the agent of rank 0).

    this process                      its agent (a child)                          the other ranks' agents
      │ join_by_hand ── Attach ─────────► │ takes this rank's port, joins ◄───────────► │
      │ ◄──────────── Attached / Refused  │                                             │
      │ MPI_Init ◄── PMI-1 ─────────────► │ ◄── barriers ─────────────────────────────► │
      │ training ── channel.py ─────────► │ ◄── agent_messages.py ────────────────────► │
      │ leave ── Left ──────────────────► │                                             │

The agent is another process because it must answer while this one holds the interpreter lock (`MPI_Init`, kernels), and
it must be able to end this one when a peer dies: MPI waits for dead peers for ever. It stops a worker with SIGTERM and,
2 s later, SIGKILL, so the shell sees 143 or 137 as the exit code of a rank that ended because another one failed. It
lives no longer than this process, whatever ends that one: it sees the end of their socket, or, where a forked child
still holds that, that it has another parent. While the others are awaited, the end of the socket ends it, too.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.cluster import environment
from paceline.cluster.job_options import JobOptions
from paceline.cluster.launched import WorkerIdentity
from paceline.cluster.options import read_variables
from paceline.cluster.spec import CHIEF, ClusterSpec, Task
from paceline.errors import EXIT_CONFIGURATION, ConfigurationError, StartError
from paceline.rendezvous.agent_messages import Refused
from paceline.rendezvous.channel import AgentLine, Attach, Attached, Left
from paceline.rendezvous.key import cluster_digest, job_key
from paceline.wire.codec import Decoder, GarbledError
from paceline.wire.frames import line as line_of
from paceline.wire.frames import receive_line

_VERDICT_MARGIN_SECONDS = 15.0
AGENT_END_SECONDS = 5.0
"""How long an agent whose job has not begun has for its end."""
_AGENT = "paceline.launcher.attached_agent"


_decode_verdict = Decoder[Attached | Refused](Attached | Refused)


@dataclass(frozen=True, slots=True)
class Membership:
    """This process's place in a job. Keep it: when its sockets close, the job takes this rank for dead.

    Args:
        identity: Rank, world size and the rest.
        pmi_socket: Where the agent answers PMI-1. Hand ``pmi_socket.detach()`` to MPI as ``PMI_FD``: MPI closes it.
        line: To the agent.
        agent: Its process.
    """

    identity: WorkerIdentity
    pmi_socket: socket.socket
    line: AgentLine
    agent: "subprocess.Popen[bytes]"

    def leave(self) -> None:
        """This rank owes the group nothing more: call it after the last collective (and `MPI_Finalize`), not before.

        From then on the end of this process is no death, and a peer's death does not end this process. Does not block.
        """
        self.line.send(Left())


@dataclass(frozen=True, slots=True)
class _AgentProcess:
    process: "subprocess.Popen[bytes]"
    line: socket.socket
    pmi: socket.socket
    parent: int
    """The process that it belongs to; a fork of that one needs another agent."""

    def end(self) -> None:
        """Lets go of one whose job has not begun: it ends when its line closes."""
        self.line.close()
        self.pmi.close()
        try:
            self.process.wait(AGENT_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_early: _AgentProcess | None = None


def start_agent_early(variables: Mapping[str, str]) -> None:
    """Starts this process's agent while TensorFlow and Keras are still imported, if it is one of several ranks in
    TF_CONFIG: it waits for `join_by_hand`, or for the end of this process. Another call does nothing.
    """
    global _early
    if _early is None and environment.RANK not in variables and _is_one_of_several(variables):
        _early = _start_agent()


def _is_one_of_several(variables: Mapping[str, str]) -> bool:
    if environment.TF_CONFIG not in variables:
        return False
    # The agent imports this module, too, and has no use for these.
    from multiprocessing import parent_process

    from paceline.cluster.tf_config import read_tf_config

    if parent_process() is not None:  # a data worker, say, which has inherited TF_CONFIG
        return False
    try:
        described = read_tf_config(variables)
    except ConfigurationError:  # who makes the strategy is told
        return False
    return described is not None and described[0].world_size > 1 and described[1] in described[0].training_tasks


def join_by_hand(
    cluster: ClusterSpec,
    task: Task,
    versions: dict[str, str],
    seed: int,
    start_timeout_seconds: float,
    hostname: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> Membership:
    """Joins the other processes of `cluster`; returns when all are there. Every rank must call it, once; blocks.

    Args:
        cluster: The whole job, the same on every rank.
        task: This process.
        versions: What must be alike on every rank: name and version of programs.
        seed: The seed that this rank proposes; the chief's wins.
        start_timeout_seconds: How long to wait for the others.
        hostname: Ranks with equal ones are on one host; this host's without it.
        variables: The environment (this process's without it). Read: PACELINE_SECRET_FILE, PACELINE_ALLOW_MISMATCH,
            PACELINE_HANG_TIMEOUT.

    Raises:
        StartError: ranks are missing, or the agent has ended.
        ConfigurationError: a setting is wrong, here or between ranks.
        ValueError: `task` has no rank in `cluster`.
    """
    global _early
    settings = os.environ if variables is None else variables
    rank = cluster.rank_of(task)
    options = read_variables(JobOptions, settings, "allow_mismatch", "hang_timeout_seconds")
    attach = Attach(
        worker_pid=os.getpid(),
        rank=rank,
        addresses=tuple(cluster.address_of_rank(other) for other in range(cluster.world_size)),
        has_chief=bool(cluster.addresses.get(CHIEF)),
        cluster_digest=cluster_digest(cluster),
        versions=versions,
        hostname=hostname or socket.gethostname(),
        seed=seed,
        start_timeout_seconds=start_timeout_seconds,
        hang_timeout_seconds=options.hang_timeout_seconds,
        allow_mismatch=options.allow_mismatch,
        key=job_key(cluster, settings, warns=rank == 0),
    )
    agent, _early = _early, None
    if agent is None or agent.parent != os.getpid() or agent.process.poll() is not None:
        agent = _start_agent()
    try:
        identity = _verdict(agent, attach)
    except BaseException:
        agent.end()
        raise
    return Membership(identity, agent.pmi, AgentLine(agent.line), agent.process)


def _start_agent() -> _AgentProcess:
    """A child in its own session, so that the terminal's Ctrl-C does not end it before it has told the others."""
    line, agents_line = socket.socketpair()
    pmi, agents_pmi = socket.socketpair()
    with agents_line, agents_pmi:
        process = subprocess.Popen(
            # -P: without it, `-m` would let a `socket.py` in the user's folder replace the standard library's.
            [
                sys.executable,
                "-P",
                "-m",
                _AGENT,
                *(str(number) for number in (agents_line.fileno(), agents_pmi.fileno(), os.getpid())),
            ],
            pass_fds=(agents_line.fileno(), agents_pmi.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    return _AgentProcess(process, line, pmi, os.getpid())


def _verdict(agent: _AgentProcess, attach: Attach) -> WorkerIdentity:
    try:
        agent.line.sendall(line_of(attach))
        verdict = _decode_verdict(receive_line(agent.line, attach.start_timeout_seconds + _VERDICT_MARGIN_SECONDS))
    except (OSError, GarbledError) as fault:
        raise StartError(
            f"the agent of rank {attach.rank} (process {agent.process.pid}, `python -m {_AGENT}`) ended unexpectedly "
            f"({fault}); its own message is on stderr. [agent-lost]"
        ) from fault
    if isinstance(verdict, Attached):
        return verdict.identity
    raise (ConfigurationError if verdict.exit_code == EXIT_CONFIGURATION else StartError)(verdict.message)
