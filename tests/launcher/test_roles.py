"""Jobs with a process beside the workers that may die alone."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.launcher.conftest import Job, wait_until

pytestmark = pytest.mark.processes

ROLES_RUN = str(Path(__file__).with_name("roles_run.py"))
LIMIT_SECONDS = 100.0

SERVES = """
import json, os, sys, time
from pathlib import Path

task, folder = json.loads(os.environ["TF_CONFIG"])["task"], Path(sys.argv[1])

def steps():
    return len((folder / "steps").read_text())

if task["type"] == "evaluator":
    # The second life waits for steps that were made while nobody lived here.
    while (folder / "killed_after").exists() and steps() < int((folder / "killed_after").read_text()) + 3:
        time.sleep(0.01)
    with (folder / "lives").open("a") as lives:
        lives.write(f"{os.getpid()}\\n")
    print("serves", flush=True)
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # an evaluator notes it, to finish its last work
    time.sleep(600)
"""
FITS = """
import keras, numpy as np

class Steps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if task["index"] == 0:
            with (folder / "steps").open("a") as file:
                file.write(".")
        if (folder / "enough").exists():
            self.model.stop_training = True

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((64, 4)), np.ones(64), batch_size=8, epochs=100_000, verbose=0, callbacks=[Steps()])
"""
ADDS = """
import numpy as np
from paceline.comm.world import current_world

world, is_over = current_world(), False
while not is_over:  # a step of the other tests' training, without TensorFlow
    [is_over] = world.group.all_reduce([np.array((folder / "enough").exists())])
    if world.rank == 0:
        with (folder / "steps").open("a") as file:
            file.write(".")
"""


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def num_steps(folder: Path) -> int:
    path = folder / "steps"
    return len(path.read_text()) if path.exists() else 0


def wait_for(condition: Callable[[], bool], jobs: Sequence[Job]) -> None:
    wait_until(lambda: condition() or any(job.process.poll() is not None for job in jobs), LIMIT_SECONDS)
    if not condition():
        for job in jobs:
            job.kill_everything()
        pytest.fail("\n".join("".join(job.process.communicate(timeout=60)) for job in jobs))


@pytest.fixture
def commands(request: pytest.FixtureRequest, fake_ssh: list[str], free_port: int) -> list[list[str]]:
    """By how the two workers are reached, the options of each `paceline run`."""
    if request.param == "one host":
        return [["-n", "2"]]
    if request.param == "ssh":
        return [["--hosts", "one:1,two:1", "--remote-python", sys.executable, *fake_ssh]]
    return [
        ["-n", "1", "--nnodes", "2", "--node-rank", rank, "--rendezvous", f"127.0.0.1:{free_port}"] for rank in "01"
    ]


@pytest.mark.parametrize(
    ("commands", "work"), [("one host", FITS), ("ssh", ADDS), ("nnodes", ADDS)], indirect=["commands"]
)
def test_training_goes_on_while_a_replaceable_process_comes_back(
    commands: list[list[str]], work: str, begin: Callable[..., Job], tmp_path: Path
):
    script = tmp_path / "script.py"
    script.write_text(SERVES + work)
    logs = tmp_path / "logs"
    jobs = [
        begin(
            sys.executable,
            *(ROLES_RUN, "evaluator:replaceable", "run", "--max-restarts", "1"),
            *("--log-dir", str(logs), *options, str(script), str(tmp_path)),
        )
        for options in commands
    ]
    lives = tmp_path / "lives"
    wait_for(lambda: len(lines_of(lives)) == 1 and num_steps(tmp_path) >= 3, jobs)
    (first_pid,) = map(int, lines_of(lives))
    (tmp_path / "killed_after").write_text(str(num_steps(tmp_path)))
    os.kill(first_pid, signal.SIGKILL)
    wait_for(lambda: len(lines_of(lives)) == 2, jobs)  # it came back after three more steps
    second_pid = int(lines_of(lives)[1])
    assert second_pid != first_pid
    (tmp_path / "enough").touch()
    finished = [job.finish(LIMIT_SECONDS) for job in jobs]
    told = finished[0].told
    assert [one.code for one in finished] == [0] * len(jobs), told
    assert all(job.is_gone() for job in jobs)
    assert re.search(r"paceline: evaluator 0 \(\S+\) was killed by signal 9 \(SIGKILL\)\. ", "\n".join(told))
    assert "paceline: evaluator 0 is started again; the others go on" in told
    assert any(re.fullmatch(rf"paceline: evaluator 0 runs again \(pid {second_pid} on \S+\)", line) for line in told)
    served = [row for row in finished[0].stdout.splitlines() if re.fullmatch(r"\[(\S+ )?evaluator 0\] serves", row)]
    assert len(served) == 2
    assert (logs / "latest" / "evaluator_0.log").read_text().count("serves\n") == 2


def test_what_a_process_outside_of_the_world_is_told(start: Callable[..., Job], tmp_path: Path):
    job = start(
        """
        import json, os, time
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        with open(f"{task['type']}_{task['index']}", "w") as file:
            json.dump(dict(os.environ), file)
            file.write("\\n")
        is_rank = task["type"] in ("chief", "worker")
        while is_rank and not all(map(os.path.exists, ("ps_0", "ps_1", "evaluator_0"))):
            time.sleep(0.01)
        if not is_rank:
            time.sleep(600)
        """,
        roles=[["ps", "replaceable"], ["evaluator", "sidecar"], ["ps", "replaceable"], ["chief", "fatal"]],
        chaos=["x"],
        snapshot_dir="/s",
        snapshot_every="5",
        variables={"RANK": "9"},
    )
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    assert job.left_over() == []
    beside = ("ps_0", "ps_1", "evaluator_0")
    told = {name: json.loads((tmp_path / name).read_text()) for name in ("chief_0", "worker_0", *beside)}
    clusters = [json.loads(one["TF_CONFIG"])["cluster"] for one in told.values()]
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {role: len(addresses) for role, addresses in clusters[0].items()} == {"chief": 1, "worker": 1, "ps": 2}
    assert len({address for addresses in clusters[0].values() for address in addresses}) == 4
    assert {name: json.loads(one["TF_CONFIG"])["task"] for name, one in told.items()} == {
        name: {"type": name.partition("_")[0], "index": int(name[-1])} for name in told
    }
    assert {name: one["PACELINE_TASK"] for name, one in told.items()} == {name: name.replace("_", " ") for name in told}
    assert {one["PACELINE_JOB_ID"] for one in told.values()} == {told["ps_0"]["PACELINE_JOB_ID"]}
    assert not any("RANK" in one for one in told.values())
    for name in ("PACELINE_CHAOS", "PACELINE_SNAPSHOT_EVERY", "PACELINE_SNAPSHOT_DIR"):
        assert name in told["worker_0"]
        may_follow = ("evaluator_0",) if name == "PACELINE_SNAPSHOT_DIR" else ()
        assert [other for other in beside if name in told[other]] == [*may_follow]
    assert f"beside them on host {os.uname().nodename}: ps 0, evaluator 0, ps 1" in finished.told[1]


TASK = """
import json, os, signal, socket, subprocess, sys, time
from pathlib import Path

config = json.loads(os.environ["TF_CONFIG"])
task, generation = config["task"], os.environ["PACELINE_GENERATION"]

def tell(name):
    Path(f"{name}.new").write_text(f"{os.getpid()}\\n")
    os.rename(f"{name}.new", name)

def wait_for(*names):
    while not all(map(os.path.exists, names)):
        time.sleep(0.01)
"""


def test_what_a_dead_process_had_started_is_gone_when_it_comes_back(start: Callable[..., Job]):
    """A child that holds the port of its dead parent would keep the next one from listening there."""
    job = start(
        TASK
        + """
if task["type"] == "worker":
    wait_for("again")
else:
    host, _, port = config["cluster"]["ps"][0].partition(":")
    first = not os.path.exists("first")
    listening = socket.create_server((host, int(port)))
    if first:
        keep = "import time; time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", keep], pass_fds=[listening.fileno()], start_new_session=True)
    tell("first" if first else "again")
    time.sleep(600)
""",
        roles=[["ps", "replaceable"]],
        max_restarts=1,
    )
    os.kill(int(job.wait_for_file("first")), signal.SIGKILL)
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    assert job.left_over() == []


def test_a_process_that_ignores_sigterm_does_not_keep_a_job_that_is_done(start: Callable[..., Job]):
    job = start(
        TASK
        + """
if task["type"] == "worker":
    wait_for("deaf")
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell("deaf")
    time.sleep(600)
""",
        roles=[["ps", "sidecar"]],
    )
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    assert job.left_over() == []


@pytest.mark.parametrize("moment", ["in the pause", "when it is back"])
def test_a_signal_ends_a_job_of_which_a_process_comes_back(start: Callable[..., Job], moment: str, tmp_path: Path):
    job = start(
        TASK
        + """
if task["type"] == "ps":
    tell("back" if os.path.exists("first") else "first")
time.sleep(600)
""",
        roles=[["ps", "replaceable"], ["evaluator", "sidecar"]],
        max_restarts=2,
        log_dir=str(tmp_path / "logs"),
    )
    os.kill(int(job.wait_for_file("first")), signal.SIGKILL)
    if moment == "in the pause":
        os.kill(int(job.wait_for_file("back")), signal.SIGKILL)
        log = tmp_path / "logs" / "latest" / "ps_0.log"
        assert wait_until(lambda: "is started again in 1 s" in log.read_text())
    else:
        job.wait_for_file("back")
    job.process.send_signal(signal.SIGTERM)
    finished = job.finish()
    assert finished.code == 128 + signal.SIGTERM, finished.stderr
    assert job.left_over() == []


def test_a_worker_that_fails_begins_a_generation_with_all_roles(start: Callable[..., Job]):
    job = start(
        TASK
        + """
tell(f"{task['type']}_{task['index']}_{generation}")
if task["type"] == "worker":
    wait_for(f"ps_0_{generation}", f"worker_{1 - task['index']}_{generation}")
    sys.exit(3 if generation == "1" and task["index"] == 1 else 0)
time.sleep(600)
""",
        roles=[["ps", "replaceable"]],
        max_restarts=1,
    )
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    assert job.left_over() == []
    assert int(job.wait_for_file("ps_0_1")) != int(job.wait_for_file("ps_0_2"))


def test_ranks_that_are_told_to_leave_still_have_the_process_beside_them(begin: Callable[..., Job], tmp_path: Path):
    """Their last snapshot may need what it holds."""
    script = tmp_path / "script.py"
    script.write_text(
        TASK
        + """
def leave(*_):
    served_by = int(Path("serves").read_text())
    os.kill(served_by, 0)
    time.sleep(0.2)
    os.kill(served_by, 0)  # not only until the signal has reached it
    os._exit(75)

if task["type"] == "worker":
    signal.signal(signal.SIGTERM, leave)
    wait_for("serves")
    tell(f"trains_{task['index']}")
else:
    tell("serves")
time.sleep(600)
"""
    )
    options = ("-n", "2", "--snapshot-dir", str(tmp_path / "snapshots"))
    job = begin(sys.executable, ROLES_RUN, "evaluator:replaceable", "run", *options, str(script))
    for rank in (0, 1):
        job.wait_for_file(f"trains_{rank}")
    job.process.send_signal(signal.SIGTERM)
    finished = job.finish()
    assert finished.code == 75, finished.stderr
    assert job.left_over() == []
