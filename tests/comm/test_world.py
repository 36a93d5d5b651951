"""A launched worker's place in its job."""

from pathlib import Path

from paceline.comm.world import _alone
from paceline.store.staging import Writer
from programs import run_python

_LAUNCHED = {
    "PACELINE_TASK": "worker 1",
    "PACELINE_RANK": "1",
    "PACELINE_WORLD_SIZE": "2",
    "PACELINE_LOCAL_RANK": "1",
    "PACELINE_LOCAL_WORLD_SIZE": "2",
    "PACELINE_GENERATION": "1",
    "PACELINE_JOB_ID": "a",
    "PACELINE_SEED": "7",
    "TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}',
}


def test_its_place_is_what_the_launcher_said_although_the_script_writes_another_tf_config(tmp_path: Path):
    code = (
        "import os\n"
        "from paceline.comm.world import current_world\n"
        "world = current_world()\n"
        'os.environ[\'TF_CONFIG\'] = \'{"cluster": {"worker": ["c:9"]}}\'\n'
        "cluster, task = world.place\n"
        "print(cluster.as_dict(), task)\n"
    )
    ended = run_python("-c", code, folder=tmp_path, variables=_LAUNCHED)
    assert ended.output == "{'worker': ['a:1', 'b:1']} worker 1\n"


def test_each_run_without_a_launcher_is_a_job_of_its_own():
    """So the next one knows the halves of snapshots that this one leaves for what they are."""
    first, second = (Writer(_alone().identity.job_id) for _ in range(2))
    assert first.job_id != second.job_id
