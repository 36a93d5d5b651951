"""`ParameterServerStrategy`: where variables lie, and loops of users over TensorFlow's coordinator."""

from pathlib import Path

import pytest

from programs import run_python
from worlds import Worlds

CASES = Path(__file__).with_name("parameter_server_cases.py")


@pytest.mark.processes
def test_variables_go_round_the_servers_and_slots_lie_beside_them(worlds: Worlds) -> None:
    weights, slots = worlds.with_servers.run(CASES, "round_robin").same
    assert sorted(weights) == [0, 0, 1, 1]
    assert slots == [[server] * 2 for server in weights]


@pytest.mark.processes
def test_a_loop_over_the_coordinator_trains(worlds: Worlds) -> None:
    before, after, losses, mean = worlds.with_servers.run(CASES, "custom_loop", "60").same
    assert after < 0.1 * before
    assert min(losses) < mean < max(losses)


@pytest.mark.processes
def test_options_are_kept_and_checked(worlds: Worlds) -> None:
    staleness, lazy, is_ours, fault = worlds.with_servers.run(CASES, "options_kept").same
    assert (staleness, lazy, is_ours) == (3, True, True)
    assert "max_staleness is -1" in fault


@pytest.mark.processes
def test_too_few_threads_for_servers_in_this_process_are_told(worlds: Worlds) -> None:
    message = worlds.with_servers.run(CASES, "too_few_threads").same
    if message.startswith("2.17."):
        pytest.skip("TensorFlow 2.17 gives its threads no names, so that nobody can count those of the servers")
    assert "steps on 5000 workers need 5001" in message
    assert "ConfigProto(inter_op_parallelism_threads=5001)" in message
    assert message.endswith("[server-threads]")


@pytest.mark.proof
@pytest.mark.processes
@pytest.mark.parametrize(("num_threads", "is_enough"), [(1, False), (2, False), (3, True)])
def test_two_workers_in_this_process_need_three_threads(tmp_path: Path, num_threads: int, is_enough: bool) -> None:
    # Without the refusal one and two threads hang at the first steps.
    ended = run_python(Path(__file__).with_name("in_process_threads.py"), str(num_threads), folder=tmp_path)
    assert ("after 100 steps: 100.0" in ended.output) == is_enough, ended.output
    assert ("[server-threads]" in ended.output) != is_enough
    assert (ended.code == 0) == is_enough
