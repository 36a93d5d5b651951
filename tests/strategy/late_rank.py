"""A process that asks for TensorFlow's collectives after TensorFlow has run an operation."""

import tensorflow as tf

from paceline.cluster.communication import Communication
from paceline.comm.world import current_world
from paceline.strategy.collective_runtime import use_tensorflow_collectives

tf.constant(1.0) + 1.0
try:
    use_tensorflow_collectives(current_world(), Communication.RING)
except RuntimeError as fault:
    print(fault, flush=True)
