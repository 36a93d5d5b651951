"""A worker or a parameter server of TensorFlow: python server.py ROLE INDEX CLUSTER. Lasts until it is killed."""

import json
import sys

import tensorflow as tf

role, index, cluster = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
server = tf.distribute.Server(
    tf.train.ClusterSpec(cluster), job_name=role, task_index=index, protocol="grpc", config=config
)
server.join()
