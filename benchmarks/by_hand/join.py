"""A rank that joins its job by hand without TensorFlow, and prints when its first collective is done."""

import json
import os
import time

from paceline.cluster.tf_config import parse_tf_config
from paceline.comm.by_hand import join_world
from paceline.comm.departure import Departure

departure = Departure()
departure.watch()
cluster, task = parse_tf_config(os.environ["TF_CONFIG"])
join_world(cluster, task, 60.0, {}, departure).group.barrier()
print(json.dumps({"done": time.monotonic()}), flush=True)
