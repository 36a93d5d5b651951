"""A rank that runs the contract's cases: ``contract_rank.py REPORT_FOLDER IMPLEMENTATION [IMPLEMENTATION …]``.

Appends one JSON line for each case to ``REPORT_FOLDER/rank_<rank>``. The first case that fails ends the process: ranks
that no longer are in the same case would only wait for each other.
"""

import faulthandler
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contract import CASES, DESYNCHRONISED_CASES
from contract_checks import bits

from paceline.cluster import environment
from paceline.comm import mpi_start
from paceline.comm.counted_group import CountedGroup
from paceline.comm.group import Group
from paceline.comm.mpi import MpiGroup
from paceline.comm.mpi_wiring import MpiWiring
from paceline.comm.world import current_world

_HARD_DEADLINE_SECONDS = 270


def windows() -> Group:
    pmi_fd = int(os.environ[environment.PMI_FD])  # the world takes it out of the environment
    world = current_world()
    wiring = MpiWiring(pmi_fd, world.rank, world.size)
    wiring.arm()  # also in a world of one, which would be a `SoloGroup`
    return mpi_start.start_mpi(wiring)


def windows_alone() -> Group:
    """As where the kernel does not let ranks read each other's memory."""
    mpi_start.peers_of = lambda group: None
    return windows()


def raw_mpi() -> Group:
    windows()
    from mpi4py import MPI

    return MpiGroup(MPI.COMM_WORLD.Dup(), MPI.Finalize)


def mpi_over_tcp() -> Group:
    os.environ[environment.FREE_SHARED_MEMORY] = str(1 << 20)
    return current_world().group


def ring() -> Group:
    from paceline.cluster.communication import Communication
    from paceline.strategy.collective_runtime import use_tensorflow_collectives

    world = current_world()
    use_tensorflow_collectives(world, Communication.RING)
    return world.group


IMPLEMENTATIONS: dict[str, Callable[[], Group]] = {
    "windows": windows,
    "windows_alone": windows_alone,
    "raw_mpi": raw_mpi,
    "mpi_over_tcp": mpi_over_tcp,
    "ring": ring,
}


def main() -> None:
    faulthandler.dump_traceback_later(_HARD_DEADLINE_SECONDS, exit=True)
    folder, implementation = sys.argv[1:]
    group = IMPLEMENTATIONS[implementation]()
    cases = dict(CASES)
    name = type(group.inner if isinstance(group, CountedGroup) else group).__name__
    if name == "SharedMemoryGroup":
        cases |= DESYNCHRONISED_CASES
    with (Path(folder) / f"rank_{group.rank}").open("w") as report:

        def tell(**line: Any) -> None:
            print(json.dumps(line), file=report, flush=True)

        tell(implementation=name)
        for case_name, case in cases.items():
            digest = hashlib.sha256()
            began = time.monotonic()
            try:
                for array in case(group):
                    digest.update(f"{array.shape} {array.dtype.name}".encode())
                    digest.update(bits(array))
            except BaseException:
                tell(case=case_name, failure=traceback.format_exc())
                os._exit(1)
            tell(case=case_name, digest=digest.hexdigest(), seconds=time.monotonic() - began)
    group.close()
    os._exit(0)


if __name__ == "__main__":
    main()
