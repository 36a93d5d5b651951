"""From options to the job: hosts, their slots, snapshots, faults, and what goes to other hosts."""

import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from paceline.cluster.hosts import HostSlots
from paceline.launcher import running
from paceline.launcher.job import JobDescription


def test_the_world_of_hosts_is_all_their_slots_unless_told_otherwise(run: CommandLine):
    assert run.job("--hosts", "a:2,b:3", "train.py").num_workers == 5
    assert run.job("-n", "auto", "--hosts", "a:2,b:3", "train.py").num_workers == 5
    assert run.job("-n", "3", "--hosts", "a:2,b:3", "train.py").num_workers == 3
    assert run.job("train.py").num_workers == 1


def test_a_hostfile_is_read_or_named(run: CommandLine):
    Path("hosts").write_text("a slots=2\nb:1  # small\n")
    assert run.job("--hostfile", "hosts", "train.py").hosts == (HostSlots("a", 2), HostSlots("b", 1))
    code, message = run.refused("--hostfile", "none", "train.py")
    assert (code, "--hostfile: received 'none'" in message, "No such file" in message) == (2, True, True)
    Path("binary").write_bytes(b"\xff\xfe\xff")
    assert "--hostfile" in run.refused("--hostfile", "binary", "train.py")[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--hosts", "a", "--hostfile", "f"), "--hosts with --hostfile"),
        (("--hosts", "a", "--nnodes", "2", "--node-rank", "0", "--rendezvous", "a:1"), "--hosts with --nnodes"),
        (("--hosts", "a", "--rendezvous", "a:1"), "--hosts with --nnodes"),
        (("--hosts", "a", "--node-rank", "1"), "--hosts with --nnodes"),
        (("--hosts", "a:0"), "--hosts"),
        (("--hosts", "a", "--ssh-command", "ssh 'x"), "--ssh-command"),
        (("--nnodes", "0"), "--nnodes: received 0; expected a number from 1 on"),
        (("--snapshot-every", "5s"), "--snapshot-dir with it"),
        (("--snapshot-dir", ""), '--snapshot-dir: received ""'),
        (("--chaos", "stop:step=50", "--snapshot-dir", "s"), "--hang-timeout"),
        (("--chaos", "kill:step=50"), "--snapshot-dir"),
        ((), "SCRIPT: received nothing"),
    ],
)
def test_what_contradicts_itself_is_refused(run: CommandLine, words: tuple[str, ...], expected: str):
    assert expected in run.refused(*words, *(["train.py"] if words else []))[1]


def test_how_ssh_reaches_the_hosts(run: CommandLine):
    words = ("--ssh-command", "ssh -F f", "-p", "22", "-i", "k", "--remote-python", "/p")
    ssh = run.job("--hosts", "a", *words, "train.py").ssh
    assert ssh is not None
    assert (ssh.command, ssh.port, ssh.identity_file, ssh.python) == (("ssh", "-F", "f"), 22, "k", "/p")
    ssh = run.job("--hosts", "a", "train.py").ssh
    assert ssh is not None
    assert ssh.python == sys.executable


def test_variables_for_all_hosts_hold_here_too(run: CommandLine):
    job = run.job("-x", "DAY=mon", "-x", "HOME", "-x", "PACELINE_SNAPSHOT_DIR=/of/env", "train.py")
    assert job.environment["DAY"] == "mon"
    assert job.forwarded == ("DAY", "HOME", "PACELINE_SNAPSHOT_DIR")
    assert job.options.snapshot_dir == "/of/env"


def test_a_folder_for_snapshots_is_made_absolute_and_a_store_is_not(run: CommandLine):
    kept = ("--snapshot-every", "40", "train.py")
    assert run.job("--snapshot-dir", "kept", *kept).options.snapshot_dir == str(Path("kept").absolute())
    assert run.job("--snapshot-dir", "gs://b/f", *kept).options.snapshot_dir == "gs://b/f"


def test_faults_are_made_definite_and_told(run: CommandLine):
    result = run("-n", "2", "--snapshot-dir", "s", "--max-restarts", "1", "--chaos", "kill:rank=1,step=50", "train.py")
    assert result.stderr == "paceline: chaos: kill rank 1 at step 50 of generation 1\n"
    assert run.jobs[-1].options.chaos == ("kill:rank=1,step=50,generation=1",)


def test_nodes_count_their_own_workers(run: CommandLine):
    job = run.job("-n", "2", "--nnodes", "2", "--node-rank", "1", "--rendezvous", "127.0.0.1:29400", "train.py")
    assert job.nodes is not None
    assert (job.num_workers, job.nodes.node_rank) == (2, 1)


def test_what_the_system_refuses_is_one_sentence(run: CommandLine, monkeypatch: pytest.MonkeyPatch):
    def refuse(job: JobDescription) -> int:
        raise PermissionError(13, "Permission denied", "logs/job_1.log")

    monkeypatch.setattr(running, "run", refuse)
    assert run.refused("train.py") == (
        69,
        "paceline: this host cannot run the job: [Errno 13] Permission denied: 'logs/job_1.log'. [host-failed]\n",
    )
