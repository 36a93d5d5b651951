"""``data_groups_loop.py DIRECTORY``: a loop of two ranks or more, which train two models; the last is killed once."""

import os
import signal
import sys
import time
from pathlib import Path

import keras
import tensorflow as tf

import paceline
from paceline.comm.world import current_world

world = current_world()
ranks_of_a_model = world.size // 2
world.arrange({"stage": 2, "data": ranks_of_a_model})
model = 1 + world.rank // ranks_of_a_model
weights = tf.Variable(100.0 * model)
total = keras.metrics.Sum()
state = paceline.TrainingState(sys.argv[1], weights=weights, total=total)
first = state.restore()
print("FIRST", world.rank, first, flush=True)
for step in range(first, 12):
    weights.assign_add(float(model))
    total.update_state(float(world.rank))
    state.save(step + 1)
    if (world.rank, step, world.identity.generation) == (world.size - 1, 8, 1):
        give_up_at = time.monotonic() + 60
        while not [*Path(sys.argv[1]).glob("step-*/manifest.json")]:
            assert time.monotonic() < give_up_at, "no snapshot was written"
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
state.close()
print("END", world.rank, float(weights), float(total.variables[0]), flush=True)
