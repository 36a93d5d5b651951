"""python slurm_place_rank.py: writes into ``place<N>`` where Paceline thinks that this task of a step is."""

import json
import os
from pathlib import Path

from paceline.cluster.slurm_step import outside_a_step, slurm_place

place = slurm_place(os.environ)
if place is None:
    Path("hint").write_text(str(outside_a_step(os.environ)))
else:
    cluster, task = place
    addresses = cluster.as_dict()["worker"]
    own = addresses[task.index].partition(":")[0]
    assert own == os.environ["SLURMD_NODENAME"]
    Path(f"place{task.index}").write_text(json.dumps(addresses))
