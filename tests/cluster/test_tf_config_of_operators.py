"""TF_CONFIG as training operators and clouds write it, in the shapes that their users see in their pods."""

import json

import pytest

from paceline.cluster.spec import Task
from paceline.cluster.tf_config import read_tf_config

TFJOB = {
    "cluster": {
        "chief": ["mnist-chief-0.research.svc:2222"],
        "ps": ["mnist-ps-0.research.svc:2222"],
        "worker": ["mnist-worker-0.research.svc:2222", "mnist-worker-1.research.svc:2222"],
    },
    "task": {"type": "worker", "index": 1},
    "environment": "cloud",
}

TRAIN_JOB = {
    "cluster": {"worker": ["mnist-node-0-0.mnist:2222", "mnist-node-0-1.mnist:2222"]},
    "task": {"type": "worker", "index": 0},
    "environment": "cloud",
}

VERTEX = {
    "cluster": {
        "chief": ["cmle-training-workerpool0-1a2b3c4d5e-0:2222"],
        "worker": [
            "cmle-training-workerpool1-1a2b3c4d5e-0:2222",
            "cmle-training-workerpool1-1a2b3c4d5e-1:2222",
        ],
    },
    "environment": "cloud",
    "job": '{"package_uris":[],"worker_pool_specs":[{"machine_spec":{"machine_type":"n1-standard-8"}}]}',
    "task": {"cloud": "b1946ac92492d2347c", "index": 0, "trial": "3", "type": "worker"},
}

VERTEX_ALONE = {
    "cluster": {"chief": ["127.0.0.1:2222"]},
    "environment": "cloud",
    "job": "{}",
    "task": {"cloud": "b1946ac92492d2347c", "index": 0, "trial": "", "type": "chief"},
}


@pytest.mark.parametrize(
    ("value", "task", "rank", "world_size"),
    [
        (TFJOB, Task("worker", 1), 2, 3),
        (TRAIN_JOB, Task("worker", 0), 0, 2),
        (VERTEX, Task("worker", 0), 1, 3),
        (VERTEX_ALONE, Task("chief", 0), 0, 1),
    ],
    ids=["TFJob", "TrainJob", "Vertex AI", "Vertex AI, one machine"],
)
def test_is_read(value: dict[str, object], task: Task, rank: int, world_size: int) -> None:
    place = read_tf_config({"TF_CONFIG": json.dumps(value)})
    assert place is not None
    cluster, own = place
    assert own == task
    assert (cluster.rank_of(own), cluster.world_size) == (rank, world_size)
    first = next(iter(value["cluster"].values()))[0]  # type: ignore[attr-defined]
    assert str(cluster.address_of_rank(0)) == first
