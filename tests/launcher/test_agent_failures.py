"""Whole jobs that fail: the first failure is the cause, everything stops, and the cause is told last."""

import json
import os
import signal
import socket
import textwrap

import pytest

from process_table import running

pytestmark = pytest.mark.processes

HOST = socket.gethostname()

TELL = """
import json, os, signal, sys, time
rank = int(os.environ["PACELINE_RANK"])
def tell(**message):
    os.write(int(os.environ["PACELINE_AGENT_FD"]), json.dumps(message).encode() + b"\\n")
"""


def script(body: str) -> str:
    return TELL + textwrap.dedent(body)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_failures_code_is_the_jobs(run, rank: int):
    finished = run(script(f"sys.exit(7) if rank == {rank} else time.sleep(600)"))
    assert finished.code == 7
    assert finished.stderr.splitlines()[-2:] == [
        f"paceline: rank {1 - rank} was stopped because rank {rank} exited with code 7",
        f"paceline: rank {rank} ({HOST}) exited with code 7. [worker-failed]",
    ]


def test_the_traceback_and_whose_it_is_are_the_last_things_printed(run):
    traceback = "Traceback (most recent call last):\n  File x\nZeroDivisionError: division by zero\n"
    finished = run(
        script(
            f"""
            if rank == 2:
                tell(type="Failed", exception="ZeroDivisionError: division by zero", traceback={traceback!r},
                     exit_code=1)
                os._exit(1)
            print("last words of", rank, flush=True)
            time.sleep(600)
            """
        ),
        num_workers=3,
    )
    assert finished.code == 1
    assert finished.stderr.splitlines()[-7:] == [
        "paceline: rank 0 was stopped because rank 2 failed",
        "paceline: rank 1 was stopped because rank 2 failed",
        f"paceline: rank 2 ({HOST}) failed with exit code 1:",
        *traceback.splitlines(),
        f"paceline: rank 2 ({HOST}): ZeroDivisionError: division by zero [worker-failed]",
    ]


def test_a_rank_that_ignores_sigterm_and_hides_its_children_is_ended_soon(start):
    job = start(
        script(
            """
            import subprocess
            if rank == 1:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
                children = [
                    subprocess.Popen(sleeper, start_new_session=True),
                    subprocess.Popen(sleeper, start_new_session=True, env={}),
                ]
                with open("children", "w") as file:
                    print(*(child.pid for child in children), file=file)
                time.sleep(600)
            while not os.path.exists("children") or not open("children").read().endswith("\\n"):
                time.sleep(0.01)
            sys.exit(3)
            """
        )
    )
    children = [int(pid) for pid in job.wait_for_file("children").split()]
    finished = job.finish()
    assert finished.code == 3
    assert job.left_over() == []
    assert running(children) == []
    assert "paceline: rank 1 was stopped because rank 0 exited with code 3" in finished.told


def test_a_killed_worker_is_told_with_its_last_words(run):
    finished = run(
        script(
            """
            if rank == 0:
                for i in range(30):
                    print("line", i, file=sys.stderr)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)
            """
        )
    )
    assert finished.code == 137
    rows = finished.stderr.splitlines()
    assert rows[-21:-1] == [f"    line {i}" for i in range(10, 30)]
    assert f"rank 0 ({HOST}) was killed by signal 9 (SIGKILL)" in rows[-1]
    assert "Paceline did not send this signal" in rows[-1]
    assert "[out-of-memory]" not in rows[-1]  # the kernel has counted no such end


def test_ranks_that_are_killed_at_once_from_outside_are_not_blamed_on_each_other(start):
    """The launcher took the SIGKILL that it was about to send for the cause, so rank 1 stopped because of rank 0."""
    job = start(script("open(f'ready{rank}', 'w').write(f'{os.getpid()}\\n'); time.sleep(600)"), num_workers=3)
    pids = [int(job.wait_for_file(f"ready{rank}")) for rank in range(3)]
    job.process.send_signal(signal.SIGSTOP)
    for pid in pids[:2]:
        os.kill(pid, signal.SIGKILL)
    job.process.send_signal(signal.SIGCONT)
    finished = job.finish()
    assert finished.code == 137
    killed = "was killed by signal 9 (SIGKILL)"
    [first] = [rank for rank in (0, 1) if f"paceline: rank {rank} ({HOST}) {killed}." in finished.stderr]
    assert f"paceline: rank {1 - first} {killed}, too; Paceline did not send that signal" in finished.told
    assert f"paceline: rank 2 was stopped because rank {first} {killed}" in finished.told
    assert f"paceline: rank {first} {killed}; stopping the job" in finished.told


def test_a_crash_is_told_as_its_signal(run):
    finished = run(script("os.kill(os.getpid(), signal.SIGSEGV)"), num_workers=1)
    assert finished.code == 139
    assert (
        finished.stderr.splitlines()[-1]
        == f"paceline: rank 0 ({HOST}) was killed by signal 11 (SIGSEGV). [worker-failed]"
    )


def test_a_later_exception_takes_one_line_before_the_cause(run):
    finished = run(
        script(
            """
            if rank == 0:
                tell(type="Failed", exception="ValueError: first", traceback="", exit_code=5)
                os._exit(5)
            def late(*_):
                tell(type="Failed", exception="OSError: reset", traceback="later traceback", exit_code=1)
                os._exit(1)
            signal.signal(signal.SIGTERM, late)
            open("ready", "w").close()
            time.sleep(600)
            """
        ).replace("if rank == 0:", "if rank == 0:\n    while not os.path.exists('ready'): time.sleep(0.01)", 1)
    )
    assert finished.code == 5
    assert finished.stderr.splitlines()[-3:] == [
        "paceline: rank 1 failed later: OSError: reset",
        f"paceline: rank 0 ({HOST}) failed with exit code 5:",
        "ValueError: first [worker-failed]",
    ]
    assert "later traceback" not in finished.stderr


def test_a_message_sent_in_the_last_moment_is_not_lost(run):
    big = "x" * 90_000
    finished = run(
        script(
            f"""
            tell(type="Failed", exception="E", traceback={json.dumps(big)} + chr(10) + "the end", exit_code=4)
            os._exit(1)
            """
        ),
        num_workers=1,
    )
    assert finished.code == 4
    assert finished.stderr.splitlines()[-2] == "the end"


@pytest.mark.parametrize("code", [0, 3])
def test_a_rank_that_exits_before_it_joined_ends_the_job_at_once(run, code: int):
    finished = run(
        script(
            f"""
            if rank == 1:
                while not os.path.exists("joining"): time.sleep(0.01)
                sys.exit({code})
            tell(type="Joining")
            open("joining", "w").close()
            time.sleep(600)
            """
        )
    )
    assert finished.code == (69 if code == 0 else 3)
    last = finished.stderr.splitlines()[-1]
    assert f"rank 1 ({HOST})" in last
    assert "before it joined the group" in last
    assert "rank 0" in last


def test_a_group_that_never_stands_ends_after_the_start_timeout(run):
    finished = run(script("tell(type='Joining'); time.sleep(600)"), start_timeout_seconds=0.5)
    assert finished.code == 69
    assert "every rank began to connect, but after 0.5 s ranks 0-1" in finished.stderr.splitlines()[-1]


def test_a_slow_rank_is_awaited_beyond_the_start_timeout(run):
    finished = run(
        script(
            """
            if rank == 1:
                while not os.path.exists("joining"): time.sleep(0.01)
                time.sleep(4.5)
            tell(type="Joining")
            open("joining", "w").close()
            tell(type="Joined")
            """
        ),
        start_timeout_seconds=4.0,
    )
    assert finished.code == 0
