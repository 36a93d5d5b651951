"""What carries the ranks' numbers to each other. Pure."""

import enum
from collections.abc import Mapping, Sequence

from paceline.cluster.job_options import JobOptions
from paceline.cluster.options import read_variables
from paceline.errors import ConfigurationError

_CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


class Communication(enum.Enum):
    """A way to communicate, by the word that users write."""

    MPI = "mpi"
    """MPI between hosts, shared memory on one: CPUs."""
    RING = "ring"
    """TensorFlow's own collectives over gRPC: CPUs; slower, for comparison and where MPI cannot run."""
    NCCL = "nccl"
    """TensorFlow's own collectives over NVIDIA's library: one GPU per rank."""


def communication(variables: Mapping[str, str], num_gpus: int) -> Communication:
    """How this rank communicates: as the user says, else NCCL where the rank was given a GPU of its own, else MPI.

    Variables read: PACELINE_COMMUNICATION, CUDA_VISIBLE_DEVICES (set for each rank by the launcher; a rank without it
    sees the GPUs of all the others, too).

    Args:
        variables: The environment.
        num_gpus: How many GPUs this process can use.

    >>> communication({"PACELINE_COMMUNICATION": "Ring"}, num_gpus=1)
    <Communication.RING: 'ring'>
    >>> communication({"CUDA_VISIBLE_DEVICES": "3"}, num_gpus=1), communication({}, num_gpus=0)
    (<Communication.NCCL: 'nccl'>, <Communication.MPI: 'mpi'>)

    Raises:
        ConfigurationError: the user names something else.
    """
    chosen = read_variables(JobOptions, variables, "communication").communication
    if chosen is not None:
        return Communication(chosen)
    has_its_own = num_gpus > 0 and variables.get(_CUDA_VISIBLE_DEVICES, "").strip() not in ("", "-1")
    return Communication.NCCL if has_its_own else Communication.MPI


def refuse_different(ways: Sequence[Communication]) -> None:
    """What the ranks have chosen, in rank order, must be the same.

    Raises:
        ConfigurationError: it is not.
    """
    if len({*ways}) == 1:
        return
    shown = ", ".join(
        f"{ways.count(way)} over {way.value} (such as rank {ways.index(way)})" for way in dict.fromkeys(ways)
    )
    raise ConfigurationError(
        f"the ranks exchange tensors in different ways: {shown}. A worker uses NCCL if it has a GPU to itself, else "
        "MPI: on some hosts workers share GPUs, or TensorFlow sees none, or a script has set PACELINE_COMMUNICATION. "
        "Give every worker a GPU, or use MPI on all hosts: paceline run --communication mpi ... "
        "[communication]"
    )
