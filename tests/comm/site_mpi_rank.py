"""python site_mpi_rank.py HOW: a rank that an MPI launcher has started, without TensorFlow.

Each writes into the file ``rank<N>`` what it knows, for `mpiexec` mixes the lines of its ranks.

HOW: "well", "early" (as well; the script has imported MPI before), "raises" (rank 1, while the others wait in a
collective), "holds" (as raises, with an exit handler that never returns), "exits" (rank 1, with code 7) or "differs"
(rank 1 has other versions).
"""

import atexit
import os
import sys
import threading
from pathlib import Path

import numpy as np

from paceline.cluster.job_directory import job_directory
from paceline.cluster.mpi_launchers import announced_by_mpi
from paceline.comm import departure as departure_module
from paceline.comm.departure import Departure
from paceline.comm.site_mpi import join_site_mpi

how = sys.argv[1]
announced = announced_by_mpi(os.environ)
assert announced is not None
if how == "early":
    from mpi4py import MPI

    assert MPI.COMM_WORLD.Get_size() == announced.size
departure = Departure()
departure.watch()
versions = {"Keras": "3.0" if how == "differs" and announced.rank == 1 else "3.15"}
world = join_site_mpi(announced, os.environ, versions, departure)
group = world.group

identity = world.identity
job_directory(identity.job_id).mkdir(exist_ok=True)
(total,) = group.all_reduce([np.array([world.rank + 1.0])])
told = f"rank {world.rank} of {world.size}, local {identity.local_rank} of {identity.local_world_size}"
Path(f"rank{world.rank}").write_text(
    f"{told}: {total[0]:g} {type(group.inner).__name__} {identity.seed} {identity.job_id}"
)
assert world.place is not None
assert world.place[0].rank_of(world.place[1]) == world.rank
assert announced_by_mpi(os.environ) is None, "a child of this process would take itself for a rank"

if how not in ("well", "early"):
    departure_module._MOST_SECONDS_TO_END = 1.0
    if world.rank == 1:
        atexit.register(print, "last words", flush=True)
        if how == "holds":
            atexit.register(threading.Event().wait)
        if how == "exits":
            sys.exit(7)
        raise RuntimeError("this rank gives up")
    group.barrier()
