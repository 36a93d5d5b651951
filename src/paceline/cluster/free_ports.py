"""Ports of this host that nobody listens on. I/O: asks the kernel."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different TCP ports, free on every IPv4 interface at the time of the call.

    All sockets stay open until the last port is found, or the kernel could name one port twice. Nothing
    reserves the ports after the return: use them soon.

    Raises:
        OSError: the kernel has no more ports or file descriptors.
    """
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            holder = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            holder.bind(("", 0))  # every interface: TensorFlow's own servers listen on all of them
            ports.append(int(holder.getsockname()[1]))
        return tuple(ports)
