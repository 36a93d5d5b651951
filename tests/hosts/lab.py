"""Several hosts on this machine: namespaces on one switch, each with its own name, interfaces, processes and sshd.

    switch (a bridge in a network namespace of its own)
      │ port0            │ port1
      │ eth0 10.77.0.1   │ eth0 10.77.0.2
    alpha              beta                ...

The machine's own interfaces, routes and /etc are not touched, and /tmp and the checkout are the same on all hosts, like
a shared file system. MPI's UCX would use shared memory across such hosts where it can (they have one kernel): tests
that mean TCP set `TCP_ONLY` and compare the interfaces' byte counters.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import namespaces
import psutil
import secure_shell

from process_table import Seen, running
from programs import LIMIT_SECONDS, Ended, Program

LAPTOP = "laptop"
NAMES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
INTERFACE = "eth0"
TCP_ONLY: Mapping[str, str] = {"UCX_TLS": "tcp,self"}
"""UCX's shared-memory transports may not respect namespaces; this keeps them out."""

_NEEDED_PROGRAMS = ("unshare", "nsenter", "setpriv", "taskset", "ip", "tc")
_SERVER_SECONDS = 60.0


def why_not() -> str:
    """Why no lab can be made here, or ""."""
    missing = [name for name in _NEEDED_PROGRAMS if shutil.which(name, path=namespaces.SEARCH_PATH) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian and Ubuntu: util-linux, iproute2)"
    try:
        with Lab(1):
            return ""
    except RuntimeError as fault:
        return str(fault)


class Lab(contextlib.AbstractContextManager["Lab"]):
    """Hosts from entering to leaving; afterwards nothing of them is left.

        with Lab(2, ssh=True) as lab:
            ended = lab.run("alpha", ["ssh", "beta", "hostname"])

    Inside, every host may call every other one by its name with plain ``ssh NAME``, as root.

    Args:
        num_hosts: How many, at most 8.
        ssh: Whether each of them has an OpenSSH server.
        laptop: Whether there is one more, `LAPTOP`, without a server and not among `hosts`.
        own_cores: Whether each of the hosts runs on its own share of this machine's cores; all run on all without it.

    Raises:
        RuntimeError: on entering: namespaces may not be made here, or a server did not start; says why.
    """

    def __init__(self, num_hosts: int, ssh: bool = False, laptop: bool = False, own_cores: bool = False) -> None:
        self.hosts: Sequence[str] = NAMES[:num_hosts]
        self._all: Sequence[str] = (*self.hosts, LAPTOP) if laptop else self.hosts
        self._with_ssh = ssh
        usable = sorted(os.sched_getaffinity(0))
        self._cores = dict.fromkeys(self._all, usable)
        if own_cores:
            self._cores |= {host: usable[index::num_hosts] or usable for index, host in enumerate(self.hosts)}
        self._holders: dict[str, namespaces.Holder] = {}
        self._programs: list[Program] = []
        self._at_end = contextlib.ExitStack()

    def __enter__(self) -> "Lab":
        with contextlib.ExitStack() as undo:
            self.folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="paceline_lab_")))
            shared = self.folder / "shared"
            (shared / "ssh").mkdir(parents=True)
            self._switch = namespaces.make_switch()
            undo.callback(self._switch.close)
            undo.callback(self._end_programs)
            for host in self._all:
                self._holders[host] = namespaces.make_host(host, self.folder / host, shared)
                undo.callback(self._holders[host].close)
            if self._with_ssh:
                secure_shell.write_configuration(shared / "ssh", self.hosts)
            for holder in (self._switch, *self._holders.values()):
                holder.wait_until_ready()
            self._connect()
            for host in self._all:
                self.set_names(host, {other: self.address(other) for other in self._all})
            if self._with_ssh:
                self._start_servers(shared / "ssh")
            self._at_end = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._at_end.close()

    # --- running

    def command(self, host: str, arguments: Sequence[str | Path], folder: Path | str = "/") -> list[str]:
        """The command line that runs a program on `host`, for who wants to start it otherwise than `start` does."""
        bound = ["taskset", "--cpu-list", ",".join(map(str, self._cores[host])), *arguments]
        return namespaces.inside(self._holders[host].pid, bound, folder)

    def start(
        self,
        host: str,
        arguments: Sequence[str | Path],
        variables: Mapping[str, str] | None = None,
        folder: Path | str = "/",
    ) -> Program:
        """Starts a program on `host`, with this process's environment and `variables`. It ends with the lab.

        Its `process` is `nsenter`; signals are for `process_of` it.
        """
        program = Program(self.command(host, arguments, folder), Path("/"), variables or {})
        self._programs.append(program)
        return program

    def run(
        self,
        host: str,
        arguments: Sequence[str | Path],
        variables: Mapping[str, str] | None = None,
        folder: Path | str = "/",
        limit_seconds: float = LIMIT_SECONDS,
    ) -> Ended:
        """Runs a program on `host` to its end.

        Raises:
            AssertionError: it took longer than `limit_seconds`, and was killed with all that it had started.
        """
        return self.start(host, arguments, variables, folder).ended(limit_seconds)

    def process_of(self, program: Program) -> psutil.Process:
        """The process of the started program itself, behind `nsenter`."""
        (process,) = psutil.Process(program.process.pid).children()
        return process

    def processes(self, host: str) -> list[Seen]:
        """What runs on `host`, without its process 1."""
        return running(sorted(namespaces.processes_of(self._holders[host].pid)))

    def freeze(self, host: str) -> None:
        """Stops all processes of `host`; its kernel still answers, as a machine's does whose processes hang."""
        namespaces.signal_all(self._holders[host].pid, signal.SIGSTOP)

    def thaw(self, host: str) -> None:
        """Lets them go on."""
        namespaces.signal_all(self._holders[host].pid, signal.SIGCONT)
        for program in self._programs:  # nsenter stops itself when what it has started is stopped
            if program.process.poll() is None:
                program.process.send_signal(signal.SIGCONT)

    def kill_host(self, host: str) -> None:
        """Ends all processes of `host` at once, with its network: as if it had lost its power. For ever."""
        self._holders[host].close()

    def cores(self, host: str) -> Sequence[int]:
        """The machine's cores on which `host` runs."""
        return self._cores[host]

    # --- network

    def address(self, host: str) -> str:
        """The IPv4 address of `host`."""
        return f"10.77.0.{self._all.index(host) + 1}"

    def set_names(self, host: str, addresses: Mapping[str, str]) -> None:
        """Makes `addresses` (and localhost) all the names that `host` can resolve."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        (self.folder / host / "hosts").write_text("\n".join(lines) + "\n")  # in place: it is bind-mounted

    def set_link(self, host: str, up: bool) -> None:
        """Plugs or pulls the network cable of `host` (at the switch: the host keeps its address)."""
        state = "up" if up else "down"
        namespaces.configure_network(self._switch.pid, f"link set {self._port(host)} {state}")

    def limit_bandwidth(self, host: str, mbit: float) -> None:
        """Limits what `host` sends and what it receives, each to `mbit` Mbit/s."""
        # The kernel sends 64 KB and headers as one packet, and cuts it in software where the burst is smaller: at
        # 1000 Mbit/s the cutting, not the limit, is then what is measured.
        limit = ["root", "tbf", "rate", f"{mbit:g}mbit", "burst", "128kb", "latency", "50ms"]
        namespaces.shape_traffic(self._holders[host].pid, "qdisc", "replace", "dev", INTERFACE, *limit)
        namespaces.shape_traffic(self._switch.pid, "qdisc", "replace", "dev", self._port(host), *limit)

    def bytes(self, host: str) -> tuple[int, int]:
        """Bytes that `host` has received and sent over its interface since the lab was made."""
        return namespaces.interface_bytes(self._holders[host].pid, INTERFACE)

    def extra_interface(self, host: str, name: str, address: str) -> None:
        """Gives `host` an interface that is up and leads nowhere, like Docker's.

        Args:
            host: Which one.
            name: Of the interface.
            address: With the length of the prefix: "172.17.0.1/16".
        """
        end = f"{self._port(host)}-{name}"[:15]
        namespaces.configure_network(
            self._holders[host].pid,
            f"link add {name} type veth peer name {end} netns {self._switch.pid}",
            f"link set {name} up",
            f"address add {address} dev {name}",
        )
        namespaces.configure_network(self._switch.pid, f"link set {end} up")

    def _port(self, host: str) -> str:
        return f"port{self._all.index(host)}"

    def _connect(self) -> None:
        """Puts a cable between each host and the switch."""
        commands = []
        for host, holder in self._holders.items():
            port = self._port(host)
            commands += [
                f"link add {port} type veth peer name {INTERFACE} netns {holder.pid}",
                f"link set {port} master switch",
                f"link set {port} up",
            ]
        namespaces.configure_network(self._switch.pid, *commands)
        for host, holder in self._holders.items():
            namespaces.configure_network(
                holder.pid,
                f"address add {self.address(host)}/24 dev {INTERFACE}",
                f"link set {INTERFACE} up",
            )

    # --- servers, and the end

    def _start_servers(self, configuration: Path) -> None:
        for host in self.hosts:
            self.start(host, secure_shell.server_command(configuration))
        give_up_at = time.monotonic() + _SERVER_SECONDS
        silent = list(self.hosts)
        while silent:
            if time.monotonic() > give_up_at:
                raise RuntimeError(
                    "no answer from sshd; they said:\n" + "\n".join(one.kill() for one in self._programs)
                )
            silent = [host for host in silent if not namespaces.listens(self._holders[host].pid, secure_shell.PORT)]
            time.sleep(0.01)

    def _end_programs(self) -> None:
        """Everything in the hosts is dead by now; this collects what was their parents."""
        for program in self._programs:
            program.process.send_signal(signal.SIGCONT)  # that of a host that is still frozen has stopped itself
            program.process.wait(namespaces.START_SECONDS)  # nsenter itself: it reaps what it has started, and ends
            program.close()
