"""A job that would not feel its chaos, or never get over it, is refused before it starts."""

import pytest

from paceline.chaos.fault_text import check_possible, plan_text, read_plan
from paceline.errors import ConfigurationError


def test_all_that_is_missing_is_told_at_once() -> None:
    plan = read_plan(["stop:rank=2,step=3; kill:rank=any,step=9"])
    with pytest.raises(ConfigurationError) as raised:
        check_possible(plan, world_size=2, servers={}, has_snapshots=False, has_hang_timeout=False)
    assert "3 faults" in str(raised.value)
    for word in ("--snapshot-dir", "--hang-timeout", "a rank from 0 to 1"):
        assert word in str(raised.value)
    check_possible(plan, world_size=3, servers={}, has_snapshots=True, has_hang_timeout=True)


def test_a_server_that_the_job_does_not_have_is_named() -> None:
    plan = read_plan(["kill:worker=2,step=3; kill:ps=0,step=5"])
    possible = {"has_snapshots": True, "has_hang_timeout": False}
    check_possible(plan, world_size=1, servers={"worker": 3, "ps": 1}, **possible)
    with pytest.raises(ConfigurationError, match="received worker 2; expected one from 0 to 1"):
        check_possible(plan, world_size=1, servers={"worker": 2, "ps": 1}, **possible)
    with pytest.raises(ConfigurationError, match="2 faults") as raised:
        check_possible(plan, world_size=4, servers={}, **possible)
    assert "received ps 0; expected rank=, as the job has no parameter servers" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "kill:worker=1,step=50; kill:ps=0,step=60; kill:worker=0,phase=restart",
            "chaos: kill worker 1 at step 50 of generation 1; kill ps 0 at step 60 of generation 1; kill worker 0 at "
            "the restart of generation 2",
        ),
        ("kill:rank=1,step=50", "chaos: kill rank 1 at step 50 of generation 1"),
        ("random:seed=7,every=40", "chaos: kill a random rank about every 40 steps (seed 7)"),
        ("slow:rank=1,factor=2.5", "chaos: make rank 1 2.5 times as slow before the first step of generation 1"),
        ("disk-full:rank=any,step=5", "chaos: disk full for any rank at step 5 of generation 1"),
        ("term:phase=validation,step=9", "chaos: term rank 0 during a validation from step 9 on of generation 1"),
        (
            "kill:step=1;kill:step=2;kill:step=3;kill:step=4",
            "chaos: kill rank 0 at step 1 of generation 1; kill rank 0 at step 2 of generation 2; kill rank 0 at step "
            "3 of generation 3; kill rank 0 at step 4 of generation 4. The job will not recover: 4 failures, "
            "but --max-restarts 3",
        ),
    ],
)
def test_one_line_says_what_will_be_done(text: str, told: str) -> None:
    assert plan_text(read_plan([text]), max_restarts=3) == told
