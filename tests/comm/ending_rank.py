"""Ranks that do not end together: rank 0 comes to its end while the others still reduce."""

import numpy as np

from paceline.comm.world import current_world
from paceline.errors import DesynchronizedError

world = current_world()
communicator = world.communicator
communicator.barrier()
try:
    if world.rank == 0:
        communicator.close()
    else:
        communicator.all_reduce([np.ones(3)])
except DesynchronizedError as fault:
    print(fault, flush=True)
