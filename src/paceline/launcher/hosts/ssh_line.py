"""Starts an agent on another host with the system's ssh client, and communicates through ssh.

    head ◄── socket pair ──► ssh ◄══ network ══► sshd ◄── stdin, stdout ──► remote_agent.py

No port is opened for it, on either side; whoever ssh lets in is trusted, with the user's own keys, aliases and jump
hosts. What a login shell prints before the agent starts is skipped.
"""

import asyncio
import contextlib
import re
import shlex
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import ConfigurationError
from paceline.launcher.other_hosts import SshOptions
from paceline.launcher.workers.guard_line import GuardLine
from paceline.rendezvous.guard_words import WorkerEnded, WorkerStarted
from paceline.wire.frames import FrameSplitter
from paceline.wire.versions import VERSION, other_paceline

_GREETING = b"\0paceline agent "
PREAMBLE = _GREETING + VERSION.encode() + b"\n"
"""What the agent writes first: no shell prints that."""

CONNECT_SECONDS = 10
_MAX_NOISE_BYTES = 1 << 16
_NUM_LAST_LINES = 8
_EXIT_SECONDS = 0.5
"""How long after the end of its output a process may take to end."""

_SSH_FAILED = 255
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127


class NotStartedError(Exception):
    """No agent came up there; the message completes the sentence "host a …"."""


@dataclass(frozen=True, slots=True)
class AgentProcess:
    """A running agent, on the other end of `connected`."""

    process: "subprocess.Popen[bytes]"
    connected: socket.socket
    splitter: FrameSplitter
    """What it has already said."""
    last_words: "LastWords"
    """What it, or ssh, complains about."""


_AGENT = "paceline.launcher.hosts.remote_agent"


def ssh_command(host: str, options: SshOptions, module: str = _AGENT) -> list[str]:
    """The command that starts an agent on `host`, or another `module` that begins to speak as an agent does.

    >>> ssh_command("ann@b", SshOptions(port=2222, python="/opt/py/bin/python"))[-4:]
    ['2222', 'ann@b', '--', 'exec /opt/py/bin/python -P -m paceline.launcher.hosts.remote_agent']
    """
    own = ["-T", "-x", "-oBatchMode=yes", f"-oConnectTimeout={CONNECT_SECONDS}"]
    own += ["-oServerAliveInterval=3", "-oServerAliveCountMax=3"]
    if options.identity_file is not None:
        own += ["-i", options.identity_file]
    if options.port is not None:
        own += ["-p", str(options.port)]
    return [*options.command, *own, host, "--", f"exec {shlex.join(agent_command(options.python, module))}"]


def agent_command(python: str, module: str = _AGENT) -> list[str]:
    """The agent's own command; `-P`: a `socket.py` in the folder there must not replace the standard library's."""
    return [python, "-P", "-m", module]


async def start_agent(command: list[str], python: str, seconds: float, guard: GuardLine) -> AgentProcess:
    """Starts an agent by `command` and waits for `seconds` at most until it speaks.

    Args:
        command: Of ssh, or of the agent itself.
        python: The interpreter that it names, for messages.
        seconds: How long to wait.
        guard: Is told of the process.

    Raises:
        NotStartedError: it does not speak; nothing of it is left here.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,  # a terminal's Ctrl-C is the head's to pass on
            )
    except OSError as fault:
        ours.close()
        raise NotStartedError(
            f"cannot be reached: {command[0]!r} does not start ({fault.strerror}). Install it, or name another client "
            "with --ssh-command"
        ) from fault
    guard.tell(WorkerStarted(process.pid))
    words = LastWords(process)
    try:
        async with asyncio.timeout(seconds):
            splitter = await _await_preamble(ours)
    except (OSError, TimeoutError) as fault:
        code = _end_process(process, 0.0 if isinstance(fault, TimeoutError) else _EXIT_SECONDS)
        guard.tell(WorkerEnded(process.pid))
        ours.close()
        if code is None:
            raise NotStartedError(f"did not answer within {seconds:g} s{words.after(': ')}") from fault
        raise NotStartedError(failure_text(code, words.lines(), python)) from fault
    except BaseException:  # the job was stopped meanwhile
        _end_process(process, 0.0)
        guard.tell(WorkerEnded(process.pid))
        ours.close()
        raise
    return AgentProcess(process, ours, splitter, words)


def _end_process(process: "subprocess.Popen[bytes]", seconds: float) -> int | None:
    """The exit code of a process that should end by itself within `seconds`; None: it had to be killed."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    process.kill()
    process.wait()
    return None


async def _await_preamble(connected: socket.socket) -> FrameSplitter:
    connected.setblocking(False)
    received = b""
    while b"\n" not in (after := received.partition(_GREETING)[2]):
        data = await asyncio.get_running_loop().sock_recv(connected, 4096)
        if not data or len(received) > _MAX_NOISE_BYTES:
            raise ConnectionError("no agent")
        received += data
    version, _, said = after.partition(b"\n")
    if version != VERSION.encode():
        raise NotStartedError(
            f"cannot take part: {other_paceline(version[:40].decode(errors='replace'))}. [hosts-differ]"
        )
    splitter = FrameSplitter()
    splitter.feed(said)
    return splitter


class LastWords:
    """Keeps the last lines of a process's stderr, and lets it never wait for a reader.

    Args:
        process: The process.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        self._stderr = process.stderr
        self._lines: deque[str] = deque(maxlen=_NUM_LAST_LINES)
        self._thread = threading.Thread(target=self._read, name="reads ssh's stderr", daemon=True)
        self._thread.start()

    def lines(self) -> list[str]:
        """The last lines of a process that has ended."""
        self._thread.join(1.0)
        return [line for line in self._lines if line]

    def after(self, beginning: str) -> str:
        """`beginning` and the last line so far; nothing where there is none."""
        said = [line for line in self._lines if line]
        return f"{beginning}{said[-1]}" if said else ""

    def _read(self) -> None:
        with self._stderr:
            for line in self._stderr:
                self._lines.append(line.decode("utf-8", "replace").strip())


_SSH_FAULTS = (
    (
        r"could not resolve hostname",
        "cannot be found: its name does not resolve. Correct the name, or add it to the ssh configuration",
    ),
    (r"connection refused", "refuses ssh connections. Is its ssh server running, on this port (--ssh-port)?"),
    (
        r"connection timed out|operation timed out",
        "does not answer over ssh. Is the host running, and does a firewall allow ssh?",
    ),
    (r"no route to host|network is unreachable", "cannot be reached: there is no network route to its address"),
    (
        r"permission denied",
        "refuses your login. Paceline never asks for a password: give ssh a key (--ssh-identity-file, ssh-copy-id)",
    ),
    (
        r"host key verification failed",
        "has a host key that ssh does not know. Connect once by hand, or add the key to known_hosts",
    ),
)
"""What OpenSSH says on stderr, which is all that tells its failures apart: every one has the exit code 255."""


def failure_text(code: int, lines: Sequence[str], python: str) -> str:
    """Why no agent came up, from the exit code and the last lines of stderr; completes "host a …". Pure."""
    said = "; ".join(lines)
    if "No module named 'paceline'" in said or "No module named paceline" in said:
        return (
            f"has no Paceline installed for {python!r}. Install Paceline there, or choose another Python "
            "(--remote-python)"
        )
    if code in (_NOT_FOUND, _NOT_EXECUTABLE):
        return f"has no Python at {python!r}. Choose one that exists there with --remote-python"
    if code == _SSH_FAILED:
        for pattern, text in _SSH_FAULTS:
            if re.search(pattern, said, re.IGNORECASE):
                return f"{text} ({said})"
        return f"cannot be reached by ssh: {said or 'it said nothing'}"
    return f"ended its agent with exit code {code}: {said or 'it said nothing'}"


def is_this_host(host: str) -> bool:
    """Whether `host` is this host and no other user's, so that no ssh is needed."""
    return host in ("localhost", "127.0.0.1", "::1", socket.gethostname())


def end_agent(agent: AgentProcess, seconds: float, guard: GuardLine) -> None:
    """Waits for the end of ssh, whose agent was told that the job is over; kills it after `seconds`. Blocks."""
    _end_process(agent.process, seconds)
    guard.tell(WorkerEnded(agent.process.pid))


def read_ssh_command(text: str) -> tuple[str, ...]:
    """The words of ``--ssh-command``.

    Raises:
        ConfigurationError: there are none, or a quote is not closed.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as fault:
        raise ConfigurationError(f"--ssh-command: received {text!r}; expected a command ({fault}) [option]") from fault
    if not words:
        raise ConfigurationError(
            "--ssh-command: received nothing; expected a command such as 'ssh -F my_config' [option]"
        )
    return words
