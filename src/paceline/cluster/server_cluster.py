"""What is asked of a cluster with parameter servers: who must be in it, and who may reach its servers. Pure."""

from collections.abc import Mapping

from paceline.cluster.address_text import is_loopback
from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.cluster.spec import CHIEF, PARAMETER_SERVER, WORKER, ClusterSpec, Task
from paceline.errors import ConfigurationError

_NEEDED = (CHIEF, WORKER, PARAMETER_SERVER)
_COMMAND = "`paceline run --workers 2 --ps 1`"

OPEN_SERVERS = (
    "the TensorFlow servers of this job listen on all interfaces and ask for no proof: whoever can reach their ports "
    "can read and write files as you. Run the job on a network that strangers cannot reach (docs/security.md)"
)


def checked_server_cluster(place: tuple[ClusterSpec, Task] | None, *, is_launched: bool) -> tuple[ClusterSpec, Task]:
    """`place`, of a process that makes a ParameterServerStrategy: the cluster has a chief, workers and servers.

    Args:
        place: The cluster and the process's own task; None: nobody has named any.
        is_launched: Whether `paceline run` did.

    Raises:
        ConfigurationError: somebody is missing; the message says who, and how to correct that.
    """
    missing = _NEEDED if place is None else tuple(role for role in _NEEDED if role not in place[0].addresses)
    if place is not None and not missing:
        return place
    needs = "a ParameterServerStrategy needs a chief, at least one worker and at least one parameter server (ps)"
    if is_launched:
        raise ConfigurationError(
            f"{needs}, but this job was started without --ps. Start it with {_COMMAND}. [no-servers]"
        )
    if place is None:
        raise ConfigurationError(
            f"{needs}, but this process has no TF_CONFIG. Start the script with {_COMMAND}, or set TF_CONFIG in every "
            "process. [no-servers]"
        )
    raise ConfigurationError(
        f"{needs}, but the cluster in TF_CONFIG has no {' and no '.join(missing)}. Add the "
        f"{'addresses' if len(missing) > 1 else 'address'} in the TF_CONFIG of every process, or start the script with "
        f"{_COMMAND}. [no-servers]"
    )


def is_chief_of_servers(place: tuple[ClusterSpec, Task] | None) -> bool:
    """Whether a process with this `place` runs the script of a job with parameter servers."""
    return place is not None and place[1].type == CHIEF and PARAMETER_SERVER in place[0].addresses


def refuse_beside_servers(place: tuple[ClusterSpec, Task] | None, strategy: str) -> None:
    """Refuses a synchronous strategy in a launched job with parameter servers: it would train on the chief alone.

    An evaluator trains nothing: there a strategy of one process is what a ParameterServerStrategy gives.

    Args:
        place: The job's cluster and the process's own task; None: it is alone.
        strategy: The class that the script has made, or would get.

    Raises:
        ConfigurationError: the job has parameter servers.
    """
    if not is_chief_of_servers(place):
        return
    assert place is not None
    raise ConfigurationError(
        f"this job has parameter servers (--ps {len(place[0].addresses[PARAMETER_SERVER])}), but its script trains "
        f"under a {strategy}, which does not use them. Make a paceline.ParameterServerStrategy() before the model, and "
        "the model in its scope(), or start the job without --ps. [no-servers]"
    )


def open_servers(cluster: ClusterSpec, variables: Mapping[str, str]) -> bool:
    """Whether the servers of `cluster` are to be warned of: other hosts are to reach them.

    Variables read: PACELINE_REQUIRE_SECRET.

    Raises:
        ConfigurationError: they are, and a secret is required, which they would not ask for.
    """
    hosts = (address.host for addresses in cluster.addresses.values() for address in addresses)
    if all(map(is_loopback, hosts)):
        return False
    refuse_open_servers(read_variables(JobOptions, variables, "require_secret"))
    return True


def refuse_open_servers(options: JobOptions) -> None:
    """Refuses servers that other hosts reach where a secret is required.

    Raises:
        ConfigurationError: it is.
    """
    if options.require_secret:
        raise ConfigurationError(
            "--require-secret (PACELINE_REQUIRE_SECRET): received a job with parameter servers or data workers on "
            f"several hosts, but {OPEN_SERVERS}, and leave --require-secret out. [secret]"
        )
