"""What an MPI launcher that is not Paceline's (`mpiexec`, ``srun --mpi=pmi2``, `mpirun`) says to its ranks. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.cluster.slurm_node_list import expand_tasks_per_node
from paceline.cluster.value_checks import Fault, FaultList, shown

_MAX_DIGITS = 9
_SLURM_COUNTS = "SLURM_STEP_TASKS_PER_NODE"


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables of one family of launchers."""

    name: str
    rank: str
    size: str
    local_size: str


_LAUNCHERS = (
    _Launcher("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    _Launcher("MVAPICH's launcher", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
    # Last, for those above may set these as well: MPICH, Intel MPI, Cray's PALS, Slurm's pmi2.
    _Launcher("the MPI launcher", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)


@dataclass(frozen=True, slots=True)
class AnnouncedWorld:
    """The world that a launcher's variables announce, before MPI itself has been asked.

    Args:
        launcher: Who, in words.
        rank: This process's number.
        size: How many processes the launcher started.
        variables: The names of the variables that say so.
        num_local: How many of them are on this host; None: the launcher does not say.
    """

    launcher: str
    rank: int
    size: int
    variables: tuple[str, str]
    num_local: int | None = None


def announced_by_mpi(variables: Mapping[str, str]) -> AnnouncedWorld | None:
    """The world that an MPI launcher announces; None where none did.

    Variables read: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE and OMPI_COMM_WORLD_LOCAL_SIZE; MV2_COMM_WORLD_RANK,
    MV2_COMM_WORLD_SIZE and MV2_COMM_WORLD_LOCAL_SIZE; PMI_RANK, PMI_SIZE and MPI_LOCALNRANKS, and where the last is
    missing SLURM_STEP_TASKS_PER_NODE and SLURM_NODEID.

    >>> announced_by_mpi({"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_FD": "9"}).size
    4

    Raises:
        ConfigurationError: a number is missing or wrong.
    """
    for launcher in _LAUNCHERS:
        if not variables.get(launcher.rank) or not variables.get(launcher.size):
            continue
        rank, size = (_number(variables[name]) for name in (launcher.rank, launcher.size))
        if rank is None or size is None or not rank < size:
            faults = FaultList(f"the environment that {launcher.name} made", "[scheduler]")
            received = f"{shown(variables[launcher.rank])} and {shown(variables[launcher.size])}"
            expected = "two whole numbers, the first one below the second"
            faults.add(f"{launcher.rank} and {launcher.size}", received, expected, "leave the launcher's variables be")
            raise faults.error()
        num_local = _num_local(variables, launcher)
        if num_local is not None and not 1 <= num_local <= size:
            num_local = None
        return AnnouncedWorld(launcher.name, rank, size, (launcher.rank, launcher.size), num_local)
    return None


def _num_local(variables: Mapping[str, str], launcher: _Launcher) -> int | None:
    """Ranks on this host; None where nobody says, or nothing that makes sense: it is not worth a refusal."""
    if text := variables.get(launcher.local_size):
        return _number(text)
    if launcher is not _LAUNCHERS[-1]:
        return None
    # Slurm's own pmi2 says it in Slurm's words; `mpiexec`, whose proxies are a step's tasks, has said it above.
    counts = expand_tasks_per_node(_SLURM_COUNTS, variables.get(_SLURM_COUNTS, ""))
    node = _number(variables.get("SLURM_NODEID", ""))
    return None if isinstance(counts, Fault) or node is None or node >= len(counts) else counts[node]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None
