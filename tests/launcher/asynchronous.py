"""``asynchronous.py FOLDER CODE``: steps on parameter servers until FOLDER has a file `enough`, then exits with CODE.

Tells of the cores of this process, and in the file `steps` of the generation and how many steps have ended in it.
"""

import os
import sys
import time
from pathlib import Path

import tensorflow as tf

import paceline
from paceline.events.bus import bus
from paceline.events.worker_events import FaultInjected

folder, code = Path(sys.argv[1]), int(sys.argv[2])
print(f"{os.environ['PACELINE_TASK']} runs the script on {len(os.sched_getaffinity(0))} cores", flush=True)
strategy = paceline.ParameterServerStrategy()
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    count = tf.Variable(0.0)


@tf.function
def add() -> None:
    count.assign_add(1.0)


scheduled = 0
while not (folder / "enough").exists():
    coordinator.schedule(add)
    scheduled += 1
    done = int(count.numpy())
    (folder / "steps.new").write_text(f"{os.environ['PACELINE_GENERATION']} {done}")
    (folder / "steps.new").rename(folder / "steps")
    if (folder / "strike").exists():  # as `--chaos` does in the chief at a step
        server = (folder / "strike").read_text()
        (folder / "strike").unlink()
        bus.emit(FaultInjected(0, f"kill:{server}", server))
    time.sleep(0.02)
coordinator.join()
print(f"{scheduled - int(count.numpy())} steps are missing", flush=True)
sys.exit(code)
