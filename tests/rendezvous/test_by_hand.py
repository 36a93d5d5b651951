"""Ranks started by hand, as real processes on loopback."""

import contextlib
import os
import signal
import socket
import subprocess
import time

import psutil
import pytest

from other_version import other_version_at
from paceline.errors import EXIT_CONFIGURATION, EXIT_UNAVAILABLE
from paceline.rendezvous.connection import SILENCE_LIMIT_SECONDS
from process_table import SOON_SECONDS

AGAIN = "Start all ranks again with the same commands."

EITHER = (0, pytest.param(1, marks=pytest.mark.proof))
"""The chief in every check, another rank in `make proof`."""

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("size", [*(pytest.param(size, marks=pytest.mark.proof) for size in (1, 2)), 3])
def test_ranks_meet_exchange_keys_and_leave(job, addresses, size):
    ranks = [job.start(index, addresses[:size], "converse") for index in reversed(range(size))][::-1]
    joined = [rank.read() for rank in ranks]
    assert {one["seed"] for one in joined} == {100}
    assert len({one["job_id"] for one in joined}) == 1
    assert [one["local"] for one in joined] == [[index, size] for index in range(size)]
    spoken = [rank.read() for rank in ranks]
    assert spoken[0]["read"] == [barrier * 100 + rank for barrier in range(3) for rank in range(size)]
    assert all(one == spoken[0] for one in spoken)
    assert [rank.wait() for rank in ranks] == [0] * size
    assert job.until_gone() == []
    assert [rank.errors() for rank in ranks] == [""] * size


def test_real_mpi(job, addresses):
    ranks = [job.start(index, addresses[:2], "mpi") for index in range(2)]
    for rank in ranks:
        rank.read()
    assert [rank.read() for rank in ranks] == [{"sum": 3, "size": 2}] * 2
    assert [rank.wait() for rank in ranks] == [0, 0]


def test_local_ranks_follow_host_names(job, addresses):
    names = ["a", "b", "a"]
    ranks = [job.start(index, addresses, hostname=name) for index, name in enumerate(names)]
    assert [rank.read()["local"] for rank in ranks] == [[0, 2], [0, 1], [1, 2]]


@pytest.mark.parametrize("absent", [pytest.param(0, marks=pytest.mark.proof), 2])
def test_an_absent_rank_is_named_on_every_present_one(job, addresses, absent):
    host, port = addresses[absent]
    ranks = [job.start(index, addresses, seconds=8) for index in range(3) if index != absent]
    assert [rank.wait() for rank in ranks] == [EXIT_UNAVAILABLE] * 2
    for rank in ranks:
        assert f"rank {absent} at {host}:{port}: connection refused" in rank.errors()
        waiting = [line for line in rank.errors().splitlines() if line.startswith("paceline: rank ")]
        assert len(waiting) == 1
        assert " of 3: " in waiting[0]  # 1 of 3, unless the second one came later than the line
        assert f"rank {absent} at {host}:{port} (connection refused: not started?)" in waiting[0]


def test_an_unknown_host_name(job, addresses):
    cluster = [addresses[0], ("no-such-host.invalid", 2222)]
    rank = job.start(0, cluster, seconds=3)
    assert rank.wait() == EXIT_UNAVAILABLE
    assert "rank 1 at no-such-host.invalid:2222: name not found" in rank.errors()


@pytest.mark.parametrize("taken", [pytest.param(0, marks=pytest.mark.proof), 1])
def test_a_port_that_another_program_has(job, addresses, taken):
    with socket.create_server(tuple(addresses[taken])):
        held, other = (
            job.start(taken, addresses[:2], seconds=4),
            job.start(1 - taken, addresses[:2], seconds=4),
        )
        assert held.wait() == EXIT_CONFIGURATION
        assert "is taken by another program" in held.errors()
        assert other.wait() == EXIT_UNAVAILABLE
        assert f"rank {taken} at" in other.errors()
        assert "the port is taken by another program" in other.errors()


def test_two_processes_with_the_same_task(job, addresses):
    chief = job.start(0, addresses)
    chief.until_error("waits for 2 of 3")
    first = job.start(1, addresses)
    assert _until_listening(addresses[1])
    second = job.start(1, addresses)
    assert second.wait() == EXIT_CONFIGURATION
    assert "is used by rank 1 of this job" in second.errors()
    third = job.start(2, addresses)
    assert [rank.wait() for rank in (chief, first, third)] == [0, 0, 0]


def test_a_job_with_another_cluster_knocks_on_the_chiefs_port(job, addresses):
    ours = [addresses[0], addresses[1]]
    theirs = [addresses[0], addresses[2]]
    chief = job.start(0, ours)
    assert _until_listening(addresses[0])
    stranger = job.start(1, theirs, seconds=3)
    assert stranger.wait() == EXIT_UNAVAILABLE
    assert "the port is taken by another job" in stranger.errors()
    member = job.start(1, ours)
    assert [chief.wait(), member.wait()] == [0, 0]


def test_a_secret_that_differs_and_one_that_agrees(job, addresses, tmp_path):
    secrets = [tmp_path / "one", tmp_path / "other"]
    for secret in secrets:
        secret.write_text(secret.name)
        secret.chmod(0o600)
    chief = job.start(0, addresses[:2], PACELINE_SECRET_FILE=str(secrets[0]))
    assert _until_listening(addresses[0])
    stranger = job.start(1, addresses[:2], seconds=2, PACELINE_SECRET_FILE=str(secrets[1]))
    assert stranger.wait() == EXIT_UNAVAILABLE
    member = job.start(1, addresses[:2], PACELINE_SECRET_FILE=str(secrets[0]))
    assert [chief.wait(), member.wait()] == [0, 0]


def test_another_cluster_under_the_same_secret_is_refused_with_both_values(job, addresses, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    chief = job.start(0, addresses[:2], PACELINE_SECRET_FILE=str(secret))
    assert _until_listening(addresses[0])
    stranger = job.start(2, addresses, PACELINE_SECRET_FILE=str(secret))
    assert stranger.wait() == EXIT_CONFIGURATION
    assert "world size 3" in stranger.errors()
    assert "on rank 0. Expected the same `cluster`" in stranger.errors()
    member = job.start(1, addresses[:2], PACELINE_SECRET_FILE=str(secret))
    assert [chief.wait(), member.wait()] == [0, 0]


def test_other_versions_end_the_start_on_every_rank(job, addresses):
    ranks = [job.start(index, addresses[:2], versions={"Keras": f"3.{index}"}) for index in range(2)]
    assert [rank.wait() for rank in ranks] == [EXIT_CONFIGURATION] * 2
    for rank in ranks:
        assert "Keras is 3.1 on rank 1, 3.0 on rank 0" in rank.errors()


def test_another_version_of_paceline_ends_the_start_at_once(job, addresses):
    with other_version_at(addresses[0][1]):
        rank = job.start(1, addresses[:2])
        assert rank.wait() == EXIT_CONFIGURATION
    assert "it runs Paceline '9.9', and this is Paceline " in rank.errors()
    assert "[hosts-differ]" in rank.errors()


@pytest.mark.proof
def test_other_versions_are_allowed_on_request(job, addresses):
    ranks = [
        job.start(index, addresses[:2], versions={"Keras": f"3.{index}"}, PACELINE_ALLOW_MISMATCH="1")
        for index in range(2)
    ]
    assert [rank.wait() for rank in ranks] == [0, 0]


@pytest.mark.parametrize("killed", EITHER)
def test_a_rank_that_dies_while_others_are_awaited_is_awaited_again(job, addresses, killed):
    ranks = [job.start(index, addresses) for index in range(2)]
    for rank in ranks:
        rank.until_error("waits for 1 of 3: rank 2")
    ranks[killed].kill()
    survivor = ranks[1 - killed]
    survivor.until_error("is gone: start it again")
    assert f"rank {killed} at" in survivor.errors().splitlines()[-1]
    again, last = job.start(killed, addresses), job.start(2, addresses, seconds=60)
    assert [rank.wait() for rank in (survivor, again, last)] == [0, 0, 0], survivor.errors()


@pytest.mark.proof
def test_a_rank_that_dies_after_rank_0_leaves_nothing(job, addresses):
    """Its agent went on to look for rank 0: it held the port, and joined the next job for a worker that was gone."""
    ranks = [job.start(index, addresses) for index in range(2)]
    for rank in ranks:
        rank.until_error("waits for 1 of 3: rank 2")
    ranks[0].kill()
    ranks[1].until_error("is gone: start it again")
    ranks[1].kill()
    assert job.until_gone() == []


@pytest.mark.proof
def test_the_start_timeout_of_a_rank_that_has_gone_counts_no_more(job, addresses):
    """The head kept the least time that any rank had left, and gave up with a rank that would have waited on."""
    limit = time.monotonic() + 15
    chief, hasty = _both_wait_for_rank_2(job, addresses, chiefs_seconds=120, others_seconds=15)
    hasty.kill()
    chief.until_error("is gone: start it again")
    again = job.start(1, addresses)
    again.until_error("waits for 1 of 3: rank 2")
    with contextlib.suppress(subprocess.TimeoutExpired):  # what must not happen
        chief.wait(max(0.1, limit - time.monotonic()))
    last = job.start(2, addresses)
    assert [rank.wait() for rank in (chief, again, last)] == [0, 0, 0], chief.errors()


def test_the_rank_whose_start_timeout_was_over_is_named(job, addresses):
    chief = job.start(0, addresses)
    assert _until_listening(addresses[0])
    hasty = job.start(1, addresses, seconds=4)
    assert [rank.wait() for rank in (chief, hasty)] == [EXIT_UNAVAILABLE] * 2
    for rank in (chief, hasty):
        assert "the start timeout of rank 1 was over first" in rank.errors()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGUSR2, marks=pytest.mark.proof), signal.SIGQUIT])
def test_notices_of_a_scheduler_leave_the_agent_alone(job, addresses, number):
    ranks = [job.start(index, addresses) for index in range(2)]
    for rank in ranks:
        rank.until_error("waits for 1 of 3: rank 2")
        [agent] = psutil.Process(rank.process.pid).children()
        agent.send_signal(number)
    ranks.append(job.start(2, addresses))
    assert [rank.wait() for rank in ranks] == [0, 0, 0], ranks[0].errors()


@pytest.mark.proof
def test_a_rank_that_dies_and_does_not_come_back_is_named_at_the_end(job, addresses):
    chief, other = _both_wait_for_rank_2(job, addresses, chiefs_seconds=10, others_seconds=120)
    other.kill()
    assert chief.wait() == EXIT_UNAVAILABLE
    assert "2 of 3 ranks did not come" in chief.errors()
    assert "rank 1 at" in chief.errors()
    assert "it had joined, and is gone" in chief.errors()


@pytest.mark.parametrize("killed", EITHER)
def test_a_rank_that_is_killed_ends_the_others(job, addresses, killed):
    ranks = [job.start(index, addresses, "hang") for index in range(3)]
    for rank in ranks:
        rank.read()
    ranks[killed].kill()
    survivors = [rank for index, rank in enumerate(ranks) if index != killed]
    assert [rank.wait() for rank in survivors] == [-signal.SIGTERM] * 2, [rank.errors() for rank in survivors]
    host, port = addresses[killed]
    for rank in survivors:
        (line,) = rank.errors().splitlines()
        assert " was stopped, because rank " in line
        assert line.endswith(f"died without a message (killed, or crashed outside Python). {AGAIN} [rank-lost]")
        assert f", {host}:{port}) died" in line
    assert job.until_gone() == []


@pytest.mark.parametrize("killed", EITHER)
def test_an_agent_that_is_killed_ends_the_others(job, addresses, killed):
    ranks = [job.start(index, addresses, "hang") for index in range(3)]
    joined = [rank.read() for rank in ranks]
    os.kill(joined[killed]["agent"], signal.SIGKILL)
    survivors = [rank for index, rank in enumerate(ranks) if index != killed]
    assert [rank.wait() for rank in survivors] == [-signal.SIGTERM] * 2, [rank.errors() for rank in survivors]
    assert all(f"because rank {killed} (" in rank.errors() and "is gone" in rank.errors() for rank in survivors)


def test_an_agent_that_stood_still_while_its_rank_died_still_says_why_the_job_ended(job, addresses):
    """Stopped and continued, it ran its timers before it read what was there, and saw only that its rank was gone.

    So did an agent on a host that had been frozen, whose rank's MPI crashed because the others were gone.
    """
    ranks = [job.start(index, addresses[:2], "hang") for index in range(2)]
    agents = [psutil.Process(rank.read()["agent"]) for rank in ranks]
    agents[1].suspend()
    ranks[0].kill()
    agents[0].wait(SILENCE_LIMIT_SECONDS + SOON_SECONDS)
    ranks[1].kill()
    ranks[1].wait()
    agents[1].resume()
    ranks[1].until_error("because rank 0 (")


@pytest.mark.slow
def test_a_rank_that_falls_silent_is_noticed(job, hold_ports):
    """A stopped agent keeps its connections open and answers nothing, as a host that vanished.

    The chief in one job, another rank in a second one: both wait for the same 10 s.
    """
    jobs = []
    for silent in (0, 1):
        addresses = [("127.0.0.1", port) for port in hold_ports(3)]
        jobs.append((silent, [job.start(index, addresses, "hang") for index in range(3)]))
    agents = [[rank.read()["agent"] for rank in ranks][silent] for silent, ranks in jobs]
    for agent in agents:
        os.kill(agent, signal.SIGSTOP)
    give_up_at = time.monotonic() + SILENCE_LIMIT_SECONDS + SOON_SECONDS
    for silent, ranks in jobs:
        survivors = [rank for index, rank in enumerate(ranks) if index != silent]
        ends = [rank.wait(max(0.0, give_up_at - time.monotonic())) for rank in survivors]
        assert ends == [-signal.SIGTERM] * 2, [rank.errors() for rank in survivors]
        for rank in survivors:
            assert f"because rank {silent} (" in rank.errors()
            assert "no message from it for 10 s" in rank.errors()
    for agent in agents:
        os.kill(agent, signal.SIGCONT)
    assert [ranks[silent].wait() for silent, ranks in jobs] == [-signal.SIGTERM] * 2


def test_a_failure_is_told_with_its_exception(job, addresses):
    ranks = [
        job.start(0, addresses[:2], "hang", hostname="a"),
        job.start(1, addresses[:2], "fail", hostname="b"),
    ]
    for rank in ranks:
        rank.read()
    ranks[1].process.stdin.write(b"\n")
    assert [ranks[0].wait(), ranks[1].wait()] == [-signal.SIGTERM, 1]
    host, port = addresses[1]
    failure = f"ZeroDivisionError: division by zero. {AGAIN} [rank-lost]"
    expected = f"rank 0 (a) was stopped, because rank 1 (b, {host}:{port}) failed: {failure}"
    assert ranks[0].errors() == f"paceline: {expected}\n"
    assert ranks[1].errors() == ""


def test_ranks_that_fail_at_once_end_each_by_itself(job, addresses):
    """The later ones were stopped in the middle of their exit handlers, and named another rank as the reason."""
    hows = ["fail-slowly", "fail-slowly", "hang"]
    ranks = [job.start(index, addresses, how) for index, how in enumerate(hows)]
    head, *_ = [rank.read()["agent"] for rank in ranks]
    failing = ranks[:2]
    os.kill(head, signal.SIGSTOP)
    for rank in failing:
        rank.process.stdin.write(b"\n")
    assert all(rank.read()["failed"] for rank in failing)
    os.kill(head, signal.SIGCONT)
    assert ranks[2].wait() == -signal.SIGTERM, "by now the job has ended all that it would end"
    for rank in failing:
        rank.process.stdin.write(b"\n")
    assert [rank.wait() for rank in failing] == [1, 1]
    assert [rank.errors() for rank in failing] == ["", ""]


def test_a_rank_that_has_left_outlives_the_others_deaths(job, addresses):
    ranks = [job.start(0, addresses[:2], "leave-then-wait"), job.start(1, addresses[:2], "hang")]
    for rank in ranks:
        rank.read()
    assert ranks[0].read()["left"]  # its agent may be told of the death first all the same
    ranks[1].kill()
    ranks[1].wait()
    ranks[0].process.stdin.write(b"\n")
    assert ranks[0].wait() == 0
    assert ranks[0].errors() == ""


@pytest.mark.parametrize("waiting", EITHER)
def test_ctrl_c_while_waiting_ends_the_rank_at_once(job, addresses, waiting):
    """Its agent did not end, and was awaited for 5 s."""
    rank = job.start(waiting, addresses, agent_end_seconds=10 * SOON_SECONDS)
    rank.until_error("waits for ")
    rank.process.send_signal(signal.SIGINT)
    assert rank.wait() != 0
    assert "KeyboardInterrupt" in rank.errors()
    assert job.until_gone() == []


def test_an_agent_that_is_killed_while_ranks_are_awaited_ends_its_rank(job, addresses):
    rank = job.start(1, addresses)
    rank.until_error("waits for ")
    [agent] = psutil.Process(rank.process.pid).children()
    agent.kill()
    assert rank.wait() == EXIT_UNAVAILABLE, "as after the start"
    assert rank.errors().strip().endswith("[agent-lost]")


def test_strangers_change_nothing(job, addresses):
    """300 connections that say nothing, rubbish, half a frame or a huge length, while the group forms."""
    chief = job.start(0, addresses[:2], "converse")
    assert _until_listening(addresses[0])
    words = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x01\x00{", b"\xff\xff\xff\xff", os.urandom(700)]
    strangers = [_knock(addresses[0], words[number % len(words)]) for number in range(300)]
    try:
        member = job.start(1, addresses[:2], "converse")
        assert [chief.wait(), member.wait()] == [0, 0]
    finally:
        for stranger in strangers:
            stranger.close()


def _both_wait_for_rank_2(job, addresses, chiefs_seconds: float, others_seconds: float):
    """Ranks 0 and 1, once both say that rank 2 alone is missing: the one that waits already tells of it at once."""
    other = job.start(1, addresses, seconds=others_seconds)
    other.until_error("waits for 1 of 3: rank 0")
    chief = job.start(0, addresses, seconds=chiefs_seconds)
    for rank in (chief, other):
        rank.until_error("waits for 1 of 3: rank 2")
    return chief, other


def _knock(address: tuple[str, int], words: bytes) -> socket.socket:
    connected = socket.create_connection(tuple(address), timeout=60)
    with contextlib.suppress(OSError):  # it was evicted already
        connected.sendall(words)
    return connected


def _until_listening(address: tuple[str, int], deadline_seconds: float = SOON_SECONDS) -> bool:
    deadline = time.monotonic() + deadline_seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(tuple(address), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False
