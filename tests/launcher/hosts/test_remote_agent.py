"""Whole jobs on several hosts, whose agents are processes of this machine: what arrives there, and what comes back."""

import asyncio
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from msgspec.structs import replace
from tests.launcher.conftest import Job, wait_until

from paceline.launcher.hosts.link import Link
from paceline.launcher.hosts.ssh_line import agent_command, end_agent, start_agent
from paceline.launcher.workers.guard_line import guarded
from paceline.rendezvous.agent_messages import Assignment, Unfit
from paceline.rendezvous.connection import HEARTBEAT_INTERVAL_SECONDS, SILENCE_LIMIT_SECONDS, Connection
from paceline.store.manifest import SnapshotMeta
from paceline.store.shards import TENSORS_FILE, Shard, rank_folder
from paceline.store.snapshots import SnapshotStore, Writer
from paceline.store.staging import snapshot_name
from process_table import Seen

pytestmark = pytest.mark.processes

HOST = socket.gethostname()
AGENT = "paceline.launcher.hosts.remote_agent"
MANY = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
"""Workers, each of which takes four open files of an agent; and it has others open."""
HELLO = """
import os
print("rank", os.environ["PACELINE_RANK"], "local", os.environ["PACELINE_LOCAL_RANK"], "in", os.getcwd())
"""
NAP = """
import os, time
open("up_" + os.environ["PACELINE_RANK"] + "_" + os.environ["PACELINE_GENERATION"], "w").write("up\\n")
time.sleep(600)
"""

Start = Callable[..., Job]


def rows_of(text: str) -> dict[int, list[str]]:
    rows: dict[int, list[str]] = {}
    for row in text.splitlines():
        match = re.fullmatch(rf"\[{re.escape(HOST)} +(\d+)\] (.*)", row)
        assert match, f"a line without its host and rank: {row!r}"
        rows.setdefault(int(match[1]), []).append(match[2])
    return rows


def test_agents_here_need_no_ssh(paceline_run: Start, tmp_path: Path):
    job = paceline_run(HELLO, "--hosts", "localhost:1,127.0.0.1:2", "--ssh-command", "/does/not/exist")
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    assert rows_of(finished.stdout) == {rank: [f"rank {rank} local {rank} in {tmp_path}"] for rank in range(3)}
    assert re.fullmatch(
        rf"paceline: 3 workers on 2 hosts \({HOST}: rank 0, {HOST}: ranks 1-2\); job [0-9a-f]{{16}}\n", finished.stderr
    )
    assert job.is_gone()


def test_over_ssh_folder_arguments_and_chosen_variables_arrive(
    paceline_run: Start, fake_ssh: list[str], tmp_path: Path
):
    script = """
    import os, sys
    rank = os.environ["PACELINE_RANK"]
    values = [os.environ.get(name) for name in ("DAY", "HERE", "TF_X", "SECRET", "LANG_X")]
    print(rank, os.getcwd(), sys.argv[1:], values)
    """
    finished = paceline_run(
        script,
        *("--hosts", "ann@a:1,b:1", *fake_ssh, "--ssh-port", "2222", "-i", "my key"),
        *("--env", "DAY=mon = day", "-x", "HERE"),
        arguments=("--epochs", "a b", "$HOME"),
        variables={"HERE": "1", "TF_X": "2", "SECRET": "3"},
    ).finish()
    assert finished.code == 0, finished.stderr
    row = f"{{}} {tmp_path} ['--epochs', 'a b', '$HOME'] ['mon = day', '1', '2', None, None]"
    assert rows_of(finished.stdout) == {rank: [row.format(rank)] for rank in (0, 1)}
    calls = sorted((tmp_path / "ssh_arguments").read_text().splitlines())
    assert len(calls) == 2
    for call, host in zip(calls, ("ann@a", "b"), strict=True):
        assert call.startswith("-F my config -T -x -oBatchMode=yes ")
        end = f"-i my key -p 2222 {host} -- exec {sys.executable} -P -m {AGENT}"
        assert call.endswith(end)


def test_no_secret_is_on_a_command_line_or_in_an_environment(paceline_run: Start, fake_ssh: list[str], tmp_path: Path):
    job = paceline_run(NAP, "--hosts", "a:1,b:1", *fake_ssh)
    for rank in (0, 1):
        job.wait_for_file(f"up_{rank}_1")
    others = [one for one in job.left_over() if one.pid != job.process.pid]
    assert len(others) >= 4, "two agents and two workers"
    for one in others:
        assert not re.search("[0-9a-f]{64}", " ".join((*one.command, *one.environment.values())))  # the key's form
    job.process.send_signal(signal.SIGINT)
    assert job.finish().code == 130


SAID_BY_SSH = [
    (
        255,
        "ssh: Could not resolve hostname fails: Name or service not known",
        "cannot be found: its name does not resolve",
    ),
    (255, "ssh: connect to host fails port 22: Connection refused", "refuses ssh"),
    (255, "fails: Permission denied (publickey).", "refuses your login"),
    (127, "sh: 1: exec: python: not found", "has no Python at '/there/python'"),
    (1, "/there/python: No module named paceline", "has no Paceline installed for '/there/python'"),
]


@pytest.mark.parametrize(("code", "said", "expected"), SAID_BY_SSH)
def test_a_host_without_an_agent_is_named_in_one_line(
    paceline_run: Start, fake_ssh: list[str], tmp_path: Path, code: int, said: str, expected: str
):
    (tmp_path / "ssh_code").write_text(str(code))
    (tmp_path / "ssh_says").write_text(f"A banner.\n{said}\n")
    job = paceline_run(HELLO, "--hosts", "localhost:1,fails:1", *fake_ssh, "--remote-python", "/there/python")
    finished = job.finish()
    assert finished.code == 69
    assert finished.stdout == ""
    (line,) = finished.stderr.splitlines()
    assert line.startswith(f"paceline: host fails {expected}")
    assert job.is_gone()


def test_all_absent_hosts_are_named(paceline_run: Start, fake_ssh: list[str], tmp_path: Path):
    (tmp_path / "ssh_code").write_text("255")
    (tmp_path / "ssh_says").write_text("No route to host")
    finished = paceline_run(HELLO, "--hosts", "localhost,fails1,fails2", *fake_ssh).finish()
    assert [line.split()[2] for line in finished.told] == ["fails1", "fails2"]


def test_an_agent_of_another_version_is_told_so(paceline_run: Start, fake_ssh: list[str]):
    finished = paceline_run(HELLO, "--hosts", "localhost,other", *fake_ssh).finish()
    assert finished.code == 69
    (line,) = finished.told
    assert line.startswith("paceline: host other cannot take part: it runs Paceline '9.9', and this is Paceline ")
    assert line.endswith(": install the same version everywhere. [hosts-differ]")


def test_an_agent_that_never_answers_ends_the_start_in_time(paceline_run: Start, fake_ssh: list[str]):
    job = paceline_run(HELLO, "--hosts", "localhost,mute", *fake_ssh, "--start-timeout", "5")
    finished = job.finish()
    assert finished.code == 69
    assert finished.told == ["paceline: host mute did not answer within 5 s. [host-unreachable]"]
    assert job.is_gone()


def test_ctrl_c_while_hosts_are_waited_for(paceline_run: Start, fake_ssh: list[str]):
    """Found in review: the wait was in a thread, which nothing could end before --start-timeout was over."""
    job = paceline_run(HELLO, "--hosts", "localhost,mute", *fake_ssh)
    assert wait_until(lambda: bool(job.find("sleep")))
    job.process.send_signal(signal.SIGINT)
    finished = job.finish()
    assert finished.code == 130
    assert job.is_gone()


def test_no_ssh_client(paceline_run: Start):
    finished = paceline_run(HELLO, "--hosts", "a", "--ssh-command", "/does/not/exist").finish()
    assert finished.code == 69
    assert finished.told == [
        "paceline: host a cannot be reached: '/does/not/exist' does not start (No such file or directory). Install it, "
        "or name another client with --ssh-command. [host-unreachable]"
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"script": "no.py"}, "has no copy of the script: {folder}/no.py is not there. Copy the program"),
        ({"directory": "/does/not/exist"}, "has no '/does/not/exist'. Copy the program"),
        (
            {"options": {"PACELINE_NETWORK_INTERFACE": "nosuch0"}},
            "cannot take part: --network-interface: received 'nosuch0'",
        ),
        ({"num_workers": 0}, "cannot take part: "),
        ({"num_workers": MANY}, f"cannot take part: --workers: received {MANY} workers for this host, for which the"),
        (
            {"options": {"PACELINE_SNAPSHOT_DIR": "t.py/kept"}},
            "cannot take part: --snapshot-dir: received 't.py/kept'; expected a folder",
        ),
    ],
)
def test_what_an_agent_cannot_run_is_told(tmp_path: Path, changes: dict[str, object], expected: str):
    (tmp_path / "t.py").touch()
    assignment = Assignment(
        num_workers=1,
        script="t.py",
        arguments=(),
        is_module=False,
        directory=str(tmp_path),
        environment={},
        options={},
        key=b"k" * 32,
        roles=(),
    )

    async def answer() -> str:
        with guarded("0123456789abcdef") as guard:
            agent = await start_agent(agent_command(sys.executable), sys.executable, 60.0, guard)
            loop = asyncio.get_running_loop()
            link = Link(loop, Connection(loop, agent.connected, agent.splitter))
            said = asyncio.get_running_loop().create_future()
            link.start(said.set_result, lambda _: None)
            link.send(replace(assignment, **changes))
            unfit = await asyncio.wait_for(said, 60.0)
            link.close()
            await asyncio.to_thread(end_agent, agent, 5.0, guard)
        assert isinstance(unfit, Unfit)
        return unfit.reason

    assert asyncio.run(answer()).startswith(expected.format(folder=tmp_path))


def test_a_script_that_is_not_there_ends_the_job_with_one_line(
    paceline_run: Start, fake_ssh: list[str], tmp_path: Path
):
    """The fake ssh takes it away before it starts the agent."""
    text = (tmp_path / "fake_ssh").read_text()
    (tmp_path / "fake_ssh").write_text(text.replace("cd /\n", "rm script.py\ncd /\n"))
    finished = paceline_run(HELLO, "--hosts", "a", *fake_ssh).finish()
    assert finished.code == 69
    (line,) = finished.told
    assert line.startswith(f"paceline: host a has no copy of the script: {tmp_path / 'script.py'} is not there. Copy")


def test_spares_take_the_place_of_hosts_that_do_not_come(paceline_run: Start, fake_ssh: list[str], tmp_path: Path):
    (tmp_path / "ssh_code").write_text("255")
    (tmp_path / "ssh_says").write_text("Connection refused")
    job = paceline_run(HELLO, "--hosts", "localhost:1,fails:1,spare:2", "-n", "2", *fake_ssh)
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    assert sorted(rows_of(finished.stdout)) == [0, 1]
    assert "paceline: host fails refuses ssh" in finished.told[0]
    assert finished.told[0].endswith("; a spare takes its place")


def test_spares_that_are_not_needed_are_not_asked(paceline_run: Start, fake_ssh: list[str], tmp_path: Path):
    finished = paceline_run(HELLO, "--hosts", "a:1,mute:1", "-n", "1", *fake_ssh).finish()
    assert finished.code == 0
    assert "mute" not in (tmp_path / "ssh_arguments").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_hosts(paceline_run: Start, fake_ssh: list[str], number: signal.Signals):
    job = paceline_run(NAP, "--hosts", "localhost:1,b:1", *fake_ssh)
    for rank in (0, 1):
        job.wait_for_file(f"up_{rank}_1")
    job.process.send_signal(number)
    finished = job.finish()
    assert finished.code == 128 + number
    assert f"paceline: stopping 2 workers ({number.name})" in finished.stderr
    assert job.is_gone()


def test_the_death_of_the_head_leaves_nothing(paceline_run: Start, fake_ssh: list[str]):
    job = paceline_run(NAP, "--hosts", "localhost:1,b:1,mute:1", "-n", "2", *fake_ssh)
    for rank in (0, 1):
        job.wait_for_file(f"up_{rank}_1")
    assert len(job.find("remote_agent")) >= 2
    job.process.kill()
    assert job.is_gone(), job.left_over()


def agents_of(job: Job) -> list[Seen]:
    """The agents themselves, in the order of their hosts; without the shells and guards around them."""
    agents = [one for one in job.find("remote_agent") if one.command[1:4] == ("-P", "-m", AGENT)]
    return sorted(agents, key=lambda one: one.pid)


def test_the_death_of_an_agent_ends_the_job_with_one_clear_line(paceline_run: Start, fake_ssh: list[str]):
    job = paceline_run(NAP, "--hosts", "localhost:1,b:1", *fake_ssh)
    for rank in (0, 1):
        job.wait_for_file(f"up_{rank}_1")
    agents_of(job)[1].send(signal.SIGKILL)
    finished = job.finish()
    assert finished.code == 69
    last = finished.stderr.splitlines()[-1]
    assert re.fullmatch(
        rf"paceline: host {HOST}, where rank [01] ran, is gone: the connection to it was .*\. \[host-lost\]", last
    )
    assert job.is_gone()


def test_an_agent_that_stands_still_is_lost_within_15_seconds(paceline_run: Start, fake_ssh: list[str]):
    job = paceline_run(NAP, "--hosts", "localhost:1,b:1", *fake_ssh)
    for rank in (0, 1):
        job.wait_for_file(f"up_{rank}_1")
    agent = agents_of(job)[1]
    agent.send(signal.SIGSTOP)
    finished = job.finish()
    assert finished.code == 69
    assert "is gone: no message from it for 10 s" in finished.stderr.splitlines()[-1]
    agent.send(signal.SIGCONT)  # behind a real ssh nobody here can end it; it ends itself when it goes on
    assert job.is_gone()


def test_floods_of_output_arrive_whole_and_in_order(paceline_run: Start, fake_ssh: list[str], tmp_path: Path):
    script = """
    import os, sys
    for i in range(20000):
        print(i, os.environ["PACELINE_RANK"] * 60)
        if i % 10 == 0:
            print("err", i, file=sys.stderr)
    """
    job = paceline_run(script, "--hosts", "localhost:1,b:2", *fake_ssh, "--log-dir", "logs")
    finished = job.finish()
    assert finished.code == 0, finished.stderr[-2000:]
    rows = rows_of(finished.stdout)
    for rank in range(3):
        assert rows[rank] == [f"{i} {str(rank) * 60}" for i in range(20000)]
        lines = (tmp_path / "logs" / "latest" / f"job_{rank}.log").read_text().splitlines()[1:]
        assert [line for line in lines if line.startswith("err")] == [f"err {i}" for i in range(0, 20000, 10)]
        assert len(lines) == 22000


def test_a_reader_that_pauses_costs_no_host(paceline_run: Start, fake_ssh: list[str]):
    """Found in review: the head stood still with its terminal or pager, and its agents took it for lost after 10 s."""
    script = "import os\nfor i in range(20000): print(i, os.environ['PACELINE_RANK'] * 60)"
    job = paceline_run(script, "--hosts", "localhost:1,b:1", *fake_ssh)
    time.sleep(SILENCE_LIMIT_SECONDS + 2 * HEARTBEAT_INTERVAL_SECONDS + 2.0)
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    assert {rank: len(rows) for rank, rows in rows_of(finished.stdout).items()} == {0: 20000, 1: 20000}


def test_a_worker_that_dies_is_followed_by_another_generation_of_the_same_agents(
    paceline_run: Start, fake_ssh: list[str]
):
    """Found in review: agents of one machine had the job's mark, and ended each other at a generation's end."""
    script = """
    import os, signal, time
    rank, generation = os.environ["PACELINE_RANK"], os.environ["PACELINE_GENERATION"]
    print("generation", generation, "agent", os.getppid())
    open(f"printed_{rank}", "w").close()
    if (rank, generation) == ("1", "1"):
        while not (os.path.exists("printed_0") and os.path.exists("printed_2")): time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    if generation == "1":
        time.sleep(600)
    """
    job = paceline_run(script, "--hosts", "localhost:1,127.0.0.1:1,b:1", *fake_ssh, "--max-restarts", "1")
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    for rows in rows_of(finished.stdout).values():
        first, second = (row.split() for row in rows)
        assert (first[1], second[1]) == ("1", "2")
        assert first[3] == second[3]
    assert "paceline: generation 2 begins" in finished.told
    assert job.is_gone()


def test_a_failed_job_names_the_newest_snapshot_that_its_hosts_can_read(
    paceline_run: Start, fake_ssh: list[str], tmp_path: Path
):
    """The launcher looked only at manifests, and with --hosts it named no snapshot at all."""
    store = SnapshotStore(tmp_path / "kept", writer=Writer("job"))
    for step in (10, 20):
        record = store.write_shard(step, 0, Shard({"w": numpy.zeros(100)}, {}))
        store.commit(step, SnapshotMeta(0, 0, 1), [record])
    tensors = tmp_path / "kept" / snapshot_name(20) / rank_folder(0) / TENSORS_FILE
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1  # of the same size: only its checksum tells
    tensors.write_bytes(content)
    hosts = ("--hosts", "b:1,c:1", *fake_ssh)
    finished = paceline_run("raise SystemExit(3)", *hosts, "--snapshot-dir", "kept").finish()
    assert finished.code == 3
    line = f"paceline: run the same command again to continue from snapshot {snapshot_name(10)} in {tmp_path / 'kept'}"
    assert line in finished.told


def test_a_lost_host_is_replaced_by_a_spare(paceline_run: Start, fake_ssh: list[str], tmp_path: Path):
    script = """
    import os, time
    rank, generation = os.environ["PACELINE_RANK"], os.environ["PACELINE_GENERATION"]
    print(rank, "in generation", generation)
    open(f"up_{rank}_{generation}", "w").write("up\\n")
    if generation == "1":
        time.sleep(600)
    """
    job = paceline_run(script, "--hosts", "localhost:1,b:1,c:1", "-n", "2", *fake_ssh, "--max-restarts", "1")
    for rank in (0, 1):
        job.wait_for_file(f"up_{rank}_1")
    away = "case $host in b) echo Connection refused >&2; exit 255;; esac\n"
    text = (tmp_path / "fake_ssh").read_text()
    (tmp_path / "fake_ssh").write_text(text.replace("shift\ncase", f"shift\n{away}case"))
    (behind_ssh,) = [one for one in agents_of(job) if "PYTEST_CURRENT_TEST" not in one.environment]
    behind_ssh.send(signal.SIGKILL)
    finished = job.finish()
    assert finished.code == 0, finished.stderr
    assert rows_of(finished.stdout) == {rank: [f"{rank} in generation 1", f"{rank} in generation 2"] for rank in (0, 1)}
    assert any(line.startswith("paceline: host b refuses ssh") for line in finished.told)
    assert [call.split(" -- ")[0].split()[-1] for call in (tmp_path / "ssh_arguments").read_text().splitlines()] == [
        "b",
        "b",
        "c",
    ]
    assert job.is_gone()


def test_more_workers_than_slots_are_refused(paceline_run: Start):
    finished = paceline_run(HELLO, "--hosts", "localhost:1", "-n", "2").finish()
    assert finished.code == 2
    assert "received 2 workers for 1 slots" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_network_interface_that_a_host_has_not_is_told_with_those_it_has(paceline_run: Start, fake_ssh: list[str]):
    finished = paceline_run(HELLO, "--hosts", "a", *fake_ssh, "--network-interface", "nosuch0").finish()
    assert finished.code == 69
    (line,) = finished.told
    assert line.startswith("paceline: host a cannot take part: --network-interface: received 'nosuch0'")
    assert "lo (127.0.0.1)" in line
