"""The cluster of a job whose workers all run on this host. Pure: the ports come from ``free_ports.py``."""

from collections.abc import Sequence

from paceline.cluster.spec import WORKER, Address, ClusterSpec

LOCAL_HOST = "127.0.0.1"
"""Not ``localhost``, which may also mean ``::1``: then one side listens where the other does not call."""


def local_cluster(ports: Sequence[int]) -> ClusterSpec:
    """A cluster with one worker for each of `ports`, in that order.

    >>> local_cluster([2222, 2223]).as_dict()
    {'worker': ['127.0.0.1:2222', '127.0.0.1:2223']}

    Raises:
        ValueError: there is no port, or one is there twice.
    """
    if not ports or len(set(ports)) != len(ports):
        raise ValueError(f"received the ports {list(ports)}; expected at least one, each for one worker only")
    return ClusterSpec({WORKER: tuple(Address(LOCAL_HOST, port) for port in ports)})
