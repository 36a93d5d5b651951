"""python by_hand_world_rank.py INDEX PORT,PORT HOW: a rank that was started by hand and makes steps without TensorFlow.

HOW: "hangs" (rank 1 makes no step after the third), "between" (outside of a `fit` that takes snapshots), "waits".
"""

import sys
import time

from paceline.cluster.spec import Address, ClusterSpec, Task
from paceline.comm.by_hand import join_world
from paceline.comm.departure import Departure
from paceline.events.bus import bus
from paceline.events.worker_events import StepDone
from paceline.resilience.schedule import preemption_of

LONG_SECONDS = 600.0

index, ports, how = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
departure = Departure()
departure.watch()
cluster = ClusterSpec({"worker": tuple(Address("127.0.0.1", int(port)) for port in ports)})
world = join_world(cluster, Task("worker", index), 120.0, {}, departure)
if how == "between":
    preemption_of(world)
print("joined", flush=True)
step = 0
while how == "hangs":
    step += 1
    if (index, step) == (1, 4):
        time.sleep(LONG_SECONDS)  # the hang, which the agents are to end
    world.group.barrier()
    time.sleep(0.1)  # steps of a usual length: of shorter ones the agent is told one every 50 ms, not each
    bus.emit(StepDone(index, step, 0))
time.sleep(LONG_SECONDS)  # until a signal or the agent ends this rank
