"""The options of ``paceline run`` that concern other hosts; loaded only when there may be some.

A host is one of --hosts, or a node: one of several hosts that were given the same command.
"""

import hashlib
import sys
from collections.abc import Mapping

from paceline.cluster import job_options
from paceline.cluster.address_text import read_address
from paceline.cluster.hosts import HostSlots, read_hostfile, read_hosts
from paceline.cluster.job_options import JobOptions
from paceline.cluster.schedulers import may_be_scheduled, scheduled_place, why_alone
from paceline.cluster.spec import Address
from paceline.cluster.value_checks import Fault
from paceline.errors import ConfigurationError
from paceline.launcher.hosts.ssh_line import read_ssh_command
from paceline.launcher.other_hosts import Nodes, SeveralHosts, SshOptions
from paceline.rendezvous.key import described_key

_MASTER_PORT = 29500
"""That of torchrun and accelerate."""


def other_hosts(options: JobOptions, variables: Mapping[str, str]) -> SeveralHosts:
    """The other hosts of the job, if there are any.

    Raises:
        ConfigurationError: hosts, nodes or their secret are wrong.
        ValueError: options exclude each other, or one means what Paceline has not.
    """
    _refuse_contradictions(options)
    if options.standalone:
        return SeveralHosts()
    if options.hosts is not None or options.hostfile is not None:  # they bring their own secret, and hear of it via ssh
        ssh = SshOptions(
            command=read_ssh_command(options.ssh_command),
            port=options.ssh_port,
            identity_file=options.ssh_identity_file,
            python=options.remote_python or sys.executable,
        )
        return SeveralHosts(hosts=_hosts(options), ssh=ssh)
    own = options.to_variables()
    secret = {name: own[name] for name in (job_options.SECRET_FILE, job_options.REQUIRE_SECRET) if name in own}
    nodes = nodes_of(*_place(options, variables), {**variables, **secret})
    hint = why_alone(variables)
    if hint is not None and nodes is None:
        print(f"paceline: {hint}", file=sys.stderr)
    return SeveralHosts(nodes=nodes)


def _refuse_contradictions(options: JobOptions) -> None:
    is_node = (options.nnodes, options.node_rank, options.rendezvous) != (None, None, None)
    if options.rdzv_backend is not None and options.rdzv_backend.lower() not in ("c10d", "static"):
        raise ValueError(
            f"--rdzv-backend: received {options.rdzv_backend!r}; expected c10d or static. Paceline needs no "
            "rendezvous store: node 0 itself listens at --rendezvous. Leave --rdzv-backend out. [rdzv-backend]"
        )
    if options.standalone and (
        options.nnodes not in (None, 1) or options.hosts is not None or options.hostfile is not None
    ):
        raise ValueError(
            "--standalone with other hosts: expected one of them. --standalone means this host alone: leave out "
            "--standalone, or --nnodes, --hosts and --hostfile. [standalone]"
        )
    if options.hosts is not None and options.hostfile is not None:
        raise ValueError("--hosts with --hostfile: expected one of them [option]")
    if (options.hosts is not None or options.hostfile is not None) and is_node:
        raise ValueError(
            "--hosts with --nnodes: expected one of them; --hosts starts the other hosts by itself [option]"
        )
    has_master = options.master_addr is not None or options.master_port is not None
    if has_master and options.rendezvous is not None and not options.standalone:
        raise ValueError(
            "--rendezvous with --master-addr or --master-port: expected one of them, because both give the "
            "address of node 0. Leave --master-addr and --master-port out. [rendezvous-twice]"
        )


def _hosts(options: JobOptions) -> tuple[HostSlots, ...]:
    if options.hosts is not None:
        return read_hosts(options.hosts)
    assert options.hostfile is not None
    try:
        return read_hostfile(options.hostfile.read_text())
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigurationError(
            f"--hostfile: received {str(options.hostfile)!r}, which cannot be read: {fault} [hosts]"
        ) from fault


def _place(options: JobOptions, variables: Mapping[str, str]) -> tuple[int | None, int | None, str | None]:
    """Number of nodes, this one's rank and the rendezvous, also as torchrun and accelerate name them; None: not given.

    Raises:
        ValueError: there is a port of the master, and no host.
    """
    if options.master_addr is None and options.master_port is None:
        return options.nnodes, options.node_rank, options.rendezvous
    if options.nnodes == 1 or (options.nnodes is None and not may_be_scheduled(variables)):
        return options.nnodes, None, None  # their --nnodes is 1 unless it is given
    if options.master_addr is None:
        raise ValueError(
            "--master-port: received no --master-addr with it; expected the host of node 0, e.g. --master-addr node0. "
            "[master-addr]"
        )
    port = _MASTER_PORT if options.master_port is None else options.master_port
    host = f"[{options.master_addr}]" if ":" in options.master_addr else options.master_addr
    return options.nnodes, options.node_rank, f"{host}:{port}"


def nodes_of(
    nnodes: int | None, node_rank: int | None, rendezvous: str | None, variables: Mapping[str, str]
) -> Nodes | None:
    """This host's place in a job of several nodes; None: it is the only one.

    Options win over what Slurm or Kubernetes say.

    Raises:
        ConfigurationError: some of the three are missing or wrong; all faults in one message.
    """
    place = scheduled_place(variables)
    faults: list[str] = []
    count, rank, address = nnodes, node_rank, None
    if place is not None:
        cluster, task, _ = place
        count = cluster.world_size if count is None else count
        rank = cluster.rank_of(task) if rank is None else rank
        address = cluster.address_of_rank(0) if rendezvous is None else None
    if count == 1:
        return None  # also when the rendezvous is one that only torchrun knows, such as localhost:0
    if address is None and rendezvous is not None:
        address = _address(rendezvous, faults)
    if count is None and rank is None and rendezvous is None and not faults:
        return None
    if count is None:
        faults.append("--nnodes: received nothing; expected how many hosts get this command, e.g. --nnodes 2")
    if rank is None:
        faults.append("--node-rank: received nothing; expected this host's number, 0 on the first one")
    elif count is not None and not 0 <= rank < count:
        faults.append(f"--node-rank: received {rank}; expected 0 to {count - 1}, as --nnodes is {count}")
    if rendezvous is None and address is None:
        faults.append("--rendezvous: received nothing; expected host:port of node 0, e.g. --rendezvous node0:29400")
    if faults:
        raise ConfigurationError("\n".join(faults) + " [nodes]")
    assert count is not None
    assert rank is not None
    assert address is not None
    description = hashlib.sha256(f"nodes {count} {address}".encode()).digest()
    key = described_key(description, [address.host] if rank == 0 else [], variables)
    return Nodes(num_nodes=count, node_rank=rank, rendezvous=address, key=key)


def _address(text: str, faults: list[str]) -> Address | None:
    read = read_address("--rendezvous", text)
    if isinstance(read, Fault):
        faults.append(str(read))
        return None
    return read
