"""What an MPI launcher that is not Paceline's (`mpiexec`, ``srun --mpi=pmi2``, `mpirun`) says to its ranks. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.cluster.faults import FaultList, shown

_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True)
class _Launcher:
    """The variables of one family of launchers."""

    name: str
    rank: str
    size: str


_LAUNCHERS = (
    _Launcher("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    _Launcher("MVAPICH's launcher", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    # Last, for those above may set these as well: MPICH, Intel MPI, Cray's PALS, Slurm's pmi2.
    _Launcher("the MPI launcher", "PMI_RANK", "PMI_SIZE"),
)


@dataclass(frozen=True, slots=True)
class AnnouncedWorld:
    """The world that a launcher's variables announce, before MPI itself has been asked.

    Args:
        launcher: Who, in words.
        rank: This process's number.
        size: How many processes the launcher started.
        variables: The names of the variables that say so.
    """

    launcher: str
    rank: int
    size: int
    variables: tuple[str, str]


def announced_by_mpi(variables: Mapping[str, str]) -> AnnouncedWorld | None:
    """The world that an MPI launcher announces; None where none did.

    Variables read: OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, MV2_COMM_WORLD_RANK and MV2_COMM_WORLD_SIZE, PMI_RANK
    and PMI_SIZE.

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
            faults = FaultList(f"the environment that {launcher.name} made")
            received = f"{shown(variables[launcher.rank])} and {shown(variables[launcher.size])}"
            expected = "two whole numbers, the first one below the second"
            faults.add(f"{launcher.rank} and {launcher.size}", received, expected, "leave the launcher's variables be")
            raise faults.error()
        return AnnouncedWorld(launcher.name, rank, size, (launcher.rank, launcher.size))
    return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None
